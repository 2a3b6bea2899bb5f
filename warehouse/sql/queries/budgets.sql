-- What methods reach on one board when held to a budget, over their seeds: those tuned by so many trials, and those
-- named, which are not tuned.
SELECT
    e.method, e.budget, count(*) AS seeds, any_value(e.n) AS n, avg(e.accuracy) AS accuracy,
    avg(e.mean_pool_size) AS mean_pool_size,
    CASE WHEN count(e.cost) = count(*) THEN avg(e.cost) END AS cost, avg(e.mean_rounds) AS mean_rounds
FROM current_evaluations AS e
WHERE e.task = '*' AND e.budget IS NOT NULL AND e.models = ?
    AND (e.benchmark, e.protocol, e.per, e.split) = (?, ?, ?, ?)
    AND coalesce((e.settings->>'$.tuned')::BIGINT = ?, list_contains(?, e.method))
GROUP BY e.method, e.budget ORDER BY e.method, mean_pool_size, cost, e.budget
