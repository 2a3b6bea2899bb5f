-- On which share of documents the runs of each method asked a model, by the round of calls; round 1 where none was kept.
WITH decided AS (
    SELECT list_extract($methods, list_position($runs, d.run_id)) AS method, d.pool, d.rounds
    FROM decisions AS d
    WHERE d.benchmark = $benchmark AND list_contains($runs, d.run_id)
),
calls AS (
    SELECT
        d.method,
        unnest(coalesce(d.rounds, list_transform(d.pool, lambda m: {model: m, round: 1::INT})), recursive := true)
    FROM decided AS d
),
totals AS (
    SELECT d.method, count(*) AS n FROM decided AS d GROUP BY d.method
)
SELECT c.method, c.model, c.round, count(*) / any_value(t.n) AS share
FROM calls AS c JOIN totals AS t USING (method)
GROUP BY c.method, c.model, c.round ORDER BY c.method, c.round, share DESC, c.model
