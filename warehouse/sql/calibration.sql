-- Reliability: documents by the confidence of a model's prediction, in `bins` of equal width, the last one closed.
-- Documents without an answer have no confidence and stay out.
CREATE OR REPLACE MACRO calibration(benchmark, bins := 10, task := '*', split := '*', models := '*', snapshot := 'now') AS TABLE
WITH answered AS (
    SELECT p.model, p.confidence, p.correct
    FROM query(warehouse.at_snapshot('predictions', snapshot)) AS p
    WHERE p.benchmark = benchmark AND split IN ('*', p.split) AND warehouse.is_named(models, p.model)
        AND warehouse.is_named(task, p.task)
)
SELECT
    a.model, least(floor(round(a.confidence * bins, 9)), bins - 1)::INT AS bin, count(*) AS n,
    avg(a.confidence) AS confidence, avg(a.correct::INT) AS accuracy
FROM answered AS a
WHERE a.confidence IS NOT NULL
GROUP BY ALL
UNION ALL
SELECT error('calibration: bins must be at least 1'), NULL, NULL, NULL, NULL WHERE coalesce(bins, 0) < 1
UNION ALL
SELECT NULL, NULL, NULL, NULL, NULL
FROM warehouse.refusals(benchmark, models, task, split, snapshot) AS r
WHERE CASE WHEN r.refusal IS NOT NULL THEN error(r.refusal) ELSE false END
ORDER BY model, bin;
