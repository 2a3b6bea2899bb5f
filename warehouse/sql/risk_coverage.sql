-- What answering only a run's likeliest answers costs, with Wilson's 95 % interval of the risk. Documents without an answer or a
-- probability are never accepted, but count; answers of equal probability are accepted together.
CREATE OR REPLACE MACRO risk_coverage(run_id, snapshot := 'now') AS TABLE
WITH decided AS (
    SELECT d.probability, d.correct, coalesce(d.answer, d.prediction::VARCHAR) IS NOT NULL AS is_answered
    FROM query(warehouse.at_snapshot('decisions', snapshot)) AS d
    WHERE d.run_id = run_id
),
steps AS (
    SELECT d.probability AS threshold, count(*) AS n, count_if(NOT d.correct) AS n_wrong
    FROM decided AS d
    WHERE d.is_answered AND d.probability IS NOT NULL
    GROUP BY ALL
),
summed AS (
    SELECT
        s.threshold, sum(s.n) OVER falling AS n, sum(s.n_wrong) OVER falling AS n_wrong
    FROM steps AS s
    WINDOW falling AS (ORDER BY s.threshold DESC)
)
SELECT
    s.threshold, s.n::BIGINT AS n, s.n / (SELECT count(*) FROM decided) AS coverage, s.n_wrong / s.n AS risk,
    warehouse.wilson(s.n_wrong, s.n).low AS low, warehouse.wilson(s.n_wrong, s.n).high AS high
FROM summed AS s
UNION ALL
SELECT NULL, NULL, NULL, NULL, NULL, NULL
WHERE CASE
    WHEN EXISTS (FROM decided) THEN false
    ELSE error(concat('no run ', coalesce(run_id::VARCHAR, 'NULL'), ' (`FROM runs`)'))
END
ORDER BY threshold DESC;
