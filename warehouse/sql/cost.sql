-- Prices are in cents per 1,000 queries. A pool's price is unknown (NULL) where that of a member is.
CREATE OR REPLACE MACRO pool_cost(of_models, snapshot := 'now') AS (
    SELECT CASE WHEN bool_and(p.price IS NOT NULL) THEN sum(p.price) END
    FROM (SELECT DISTINCT unnest(of_models) AS model) AS member LEFT JOIN query(warehouse.at_snapshot('models', snapshot)) AS p USING (model)
);

-- What each query cost, in cents per 1,000 such queries: by its tokens where their number and prices are known, else the
-- flat price. For choices, the longest one counts as the answer; the prompt of several passes or traces counts once, and
-- every token of the traces as generated.
CREATE OR REPLACE VIEW query_costs AS
WITH used AS (
    SELECT
        c.benchmark, c.task, c.doc_id, c.model,
        max(c.n_prompt_tokens) AS n_prompt_tokens, max(c.n_tokens) AS n_answered_tokens
    FROM choice_logprobs AS c GROUP BY ALL
    UNION ALL
    SELECT
        p.benchmark, p.task, p.doc_id, p.model, max(p.n_prompt_tokens),
        CASE WHEN count(p.n_tokens) = count(*) THEN sum(p.n_tokens) END
    FROM answer_passes AS p GROUP BY ALL
),
thought AS (
    SELECT t.benchmark, t.task, t.doc_id, t.model, sum(t.n_tokens) AS n_tokens FROM traces AS t GROUP BY ALL
)
SELECT
    u.benchmark, u.task, u.doc_id, u.model, u.n_prompt_tokens, u.n_answered_tokens,
    coalesce(t.n_tokens, 0) AS n_thought_tokens,
    (u.n_prompt_tokens * m.price_input + (u.n_answered_tokens + coalesce(t.n_tokens, 0)) * m.price_output) / 1000
        AS token_cost,
    coalesce(token_cost, m.price) AS cost
FROM used AS u
LEFT JOIN thought AS t USING (benchmark, task, doc_id, model)
LEFT JOIN models AS m USING (model);

-- What each model's accuracy costs on a benchmark. right_answer: cents per 1,000 right answers. A model is on the
-- frontier if no other that costs as little is as accurate (of equals, the first by name); point: cents per 1,000 queries
-- for each percentage point gained over the next cheaper model on the frontier.
CREATE OR REPLACE VIEW model_cost AS
WITH ranked AS (
    SELECT
        b.benchmark, b.model, b.n, b.accuracy, m.price,
        max(b.accuracy) OVER (
            PARTITION BY b.benchmark ORDER BY m.price, b.accuracy DESC, b.model
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS best_so_far
    FROM benchmark_accuracy AS b LEFT JOIN models AS m USING (model)
),
placed AS (
    SELECT r.*, r.price IS NOT NULL AND coalesce(r.accuracy > r.best_so_far, true) AS on_frontier FROM ranked AS r
)
SELECT
    p.benchmark, p.model, p.n, p.accuracy, p.price, p.price / nullif(p.accuracy, 0) AS right_answer, p.on_frontier,
    CASE WHEN p.on_frontier THEN
        (p.price - lag(p.price) OVER cheaper) / (100 * (p.accuracy - lag(p.accuracy) OVER cheaper))
    END AS point
FROM placed AS p
WINDOW cheaper AS (PARTITION BY p.benchmark, p.on_frontier ORDER BY p.price);
