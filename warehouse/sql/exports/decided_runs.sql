-- The newest runs on the test documents of a benchmark; a method without a seed counts for every seed.
SELECT e.run_id, e.method, e.seed, e.per, e.models
FROM current_evaluations AS e
WHERE e.benchmark = $benchmark AND e.task = '*' AND e.split = 'test' AND e.budget IS NULL AND e.protocol = $protocol
    AND coalesce(e.method = $method, true) AND coalesce(e.seed = $seed, true)
    AND coalesce(list_sort(e.models) = list_sort($models::VARCHAR[]), true)
ORDER BY e.method, e.seed NULLS FIRST, e.per, e.run_id;
