-- The figures of methods with a budget on one board, over their seeds: of runs tuned by $trials trials, and of methods
-- in $untuned. strong_share: the share of documents on which $strong was asked.
WITH asked AS (
    SELECT run_id, avg(CAST(list_contains(pool, $strong) AS INT)) AS strong_share
    FROM decisions WHERE benchmark = $benchmark GROUP BY run_id
)
SELECT
    e.method, e.budget, count(*) AS seeds, any_value(e.n) AS n, avg(e.accuracy) AS accuracy,
    avg(e.mean_pool_size) AS mean_pool_size,
    CASE WHEN count(e.cost) = count(*) THEN avg(e.cost) END AS cost, avg(e.mean_rounds) AS mean_rounds,
    avg(a.strong_share) AS strong_share
FROM current_evaluations AS e LEFT JOIN asked AS a USING (run_id)
WHERE e.task = '*' AND e.budget IS NOT NULL AND e.models = $models
    AND (e.benchmark, e.protocol, e.per, e.split) = ($benchmark, $protocol, $per, $split)
    AND coalesce((e.settings->>'$.tuned')::BIGINT = $trials, list_contains($untuned, e.method))
GROUP BY e.method, e.budget ORDER BY e.method, mean_pool_size, cost, e.budget
