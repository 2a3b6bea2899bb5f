-- Accuracies of models on a benchmark, by task, and when the last of their answers came. stderr: that of the view
-- `accuracy`, from the share alone, whose last digits depend on no order of rows.
SELECT
    a.model, a.task, a.n, a.accuracy, sqrt(a.accuracy * (1 - a.accuracy) / nullif(a.n - 1, 0)) AS stderr,
    epoch(max(e.committed_at))::BIGINT AS committed_at, arg_max(e.backend, e.committed_at) AS backend
FROM accuracy AS a
LEFT JOIN extractions AS e USING (benchmark, task, model)
WHERE a.benchmark = $benchmark AND coalesce(list_contains($models::VARCHAR[], a.model), true)
GROUP BY a.model, a.task, a.n, a.accuracy
ORDER BY a.model, a.task;
