-- The models, other than one, that answered a task of temp.differing.
SELECT DISTINCT e.benchmark, e.task, e.model
FROM extractions AS e SEMI JOIN temp.differing USING (benchmark, task)
WHERE e.model <> $model
ORDER BY ALL;
