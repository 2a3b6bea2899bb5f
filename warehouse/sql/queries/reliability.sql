-- Reliability of models on test documents by the macro calibration, and in the same bins of what runs decided.
WITH of_runs AS (
    SELECT
        list_extract($methods, list_position($runs, d.run_id)) AS name, d.probability, d.correct,
        least(floor(round(d.probability * $bins, 9)), $bins - 1)::INT AS bin
    FROM decisions AS d
    WHERE d.benchmark = $benchmark AND list_contains($runs, d.run_id) AND d.probability IS NOT NULL
),
every AS (
    SELECT c.model AS name, false AS is_ours, c.bin, c.n, c.confidence, c.accuracy
    FROM calibration($benchmark, bins := $bins, split := 'test', models := $models) AS c
    UNION ALL
    SELECT r.name, true, r.bin, count(*), avg(r.probability), avg(r.correct::INT) FROM of_runs AS r GROUP BY r.name, r.bin
)
SELECT e.name, e.is_ours, e.n, e.confidence, e.accuracy FROM every AS e ORDER BY e.is_ours, e.name, e.bin
