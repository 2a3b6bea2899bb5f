-- Reliability: documents by the confidence of a model's prediction, in `bins` of equal width, the last one closed.
-- Documents without an answer have no confidence and stay out.
CREATE OR REPLACE MACRO calibration(benchmark, bins := 10, task := '*', split := '*') AS TABLE
SELECT
    p.model, least(floor(round(p.confidence * bins, 9)), bins - 1)::INT AS bin, count(*) AS n,
    avg(p.confidence) AS confidence, avg(p.correct::INT) AS accuracy
FROM predictions AS p
WHERE p.benchmark = benchmark AND (task = '*' OR p.task = task) AND (split = '*' OR p.split = split)
    AND p.confidence IS NOT NULL
GROUP BY ALL
ORDER BY p.model, bin;
