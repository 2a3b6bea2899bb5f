-- Each model's accuracy on tasks and a split, by the documents it answered, with Wilson's 95 % interval. Choices also have
-- the Brier score (squared distances of all choices' probabilities, summed) and log-loss (of the right choice, in nats),
-- NULL unless all of a model's answers are choices.
CREATE OR REPLACE MACRO model_scores(benchmark, task := '*', split := '*', models := '*', snapshot := 'now') AS TABLE
WITH documents AS (
    SELECT d.task, d.doc_id, d.label
    FROM query(warehouse.at_snapshot('docs', snapshot)) AS d
    WHERE d.benchmark = benchmark AND split IN ('*', d.split)
),
scored AS (
    SELECT
        c.task, c.doc_id, c.model, max(c.logprob) AS highest, list(c.logprob) AS logprobs,
        any_value(c.logprob) FILTER (c.choice = d.label) AS gold_logprob
    FROM query(warehouse.at_snapshot('choice_logprobs', snapshot)) AS c JOIN documents AS d USING (task, doc_id)
    WHERE c.benchmark = benchmark
        AND warehouse.is_named(task, c.task)
        AND warehouse.is_named(models, c.model)
    GROUP BY ALL
    HAVING bool_and(coalesce(isfinite(c.logprob) AND coalesce(c.logprob <= 1e-6 * c.n_tokens, true), false))
),
shares AS (
    SELECT
        s.*, list_sum(list_transform(s.logprobs, lambda l: exp(l - s.highest))) AS total,
        list_sum(list_transform(s.logprobs, lambda l: exp(2 * (l - s.highest)))) AS squares
    FROM scored AS s
),
probabilities AS (
    SELECT
        s.model, count(*) AS n, avg(ln(s.total) + s.highest - s.gold_logprob) AS log_loss,
        avg(s.squares / s.total ** 2 - 2 * exp(s.gold_logprob - s.highest) / s.total + 1) AS brier
    FROM shares AS s
    GROUP BY s.model
),
counted AS (
    SELECT a.model, count(*) AS n, count_if(a.correct) AS n_right
    FROM warehouse.numbered_answers(benchmark, models, task, split, snapshot) AS a
    GROUP BY a.model
)
SELECT
    c.model, c.n, c.n_right / c.n AS accuracy,
    sqrt(c.n_right::DOUBLE * (c.n - c.n_right) / nullif(c.n - 1, 0)) / c.n AS stderr,
    warehouse.wilson(c.n_right, c.n).low AS low, warehouse.wilson(c.n_right, c.n).high AS high,
    CASE WHEN p.n = c.n THEN p.brier END AS brier, CASE WHEN p.n = c.n THEN p.log_loss END AS log_loss
FROM counted AS c LEFT JOIN probabilities AS p USING (model)
ORDER BY model;
