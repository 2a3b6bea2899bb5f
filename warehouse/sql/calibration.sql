-- Reliability: documents by the confidence of a model's prediction, in `bins` of equal width, the last one closed.
-- Documents without an answer have no confidence and stay out.
CREATE OR REPLACE MACRO calibration(benchmark, bins := 10, task := '*', split := '*') AS TABLE
WITH answered AS (
    SELECT p.model, p.confidence, p.correct
    FROM predictions AS p
    WHERE p.benchmark = benchmark AND (task = '*' OR p.task = task) AND (split = '*' OR p.split = split)
)
SELECT
    p.model, least(floor(round(p.confidence * bins, 9)), bins - 1)::INT AS bin, count(*) AS n,
    avg(p.confidence) AS confidence, avg(p.correct::INT) AS accuracy
FROM answered AS p
WHERE p.confidence IS NOT NULL
GROUP BY ALL
UNION ALL
SELECT error('calibration: bins must be at least 1'), NULL, NULL, NULL, NULL WHERE bins < 1
UNION ALL
SELECT
    error('calibration: nobody answered ' || concat(benchmark, '/' || nullif(task, '*'), ', split ' || nullif(split, '*'))),
    NULL, NULL, NULL, NULL
WHERE NOT EXISTS (FROM answered)
ORDER BY model, bin;
