-- The most accurate of models ($2) on a benchmark ($1), and how often guessing among a document's choices would be right:
-- NULL where documents have no choices.
WITH best AS (
    SELECT o.model, count(*) AS n, sum(o.correct::INT)::BIGINT AS n_right
    FROM outcomes AS o
    WHERE o.benchmark = $1 AND list_contains($2, o.model)
    GROUP BY o.model
    ORDER BY avg(o.correct::INT) DESC, o.model
    LIMIT 1
),
offered AS (
    SELECT c.task, c.doc_id, max(c.choice) + 1 AS n_choices
    FROM choice_logprobs AS c JOIN docs AS d USING (benchmark, task, doc_id)
    WHERE c.benchmark = $1 AND d.label IS NOT NULL AND c.model = (SELECT b.model FROM best AS b)
    GROUP BY ALL
)
SELECT b.model, b.n, b.n_right, (SELECT avg(1 / f.n_choices) FROM offered AS f) FROM best AS b;
