-- A stored partition, without a recorded gap, whose task now has more documents than it.
SELECT e.benchmark, e.task, e.model, e.n_docs, d.n
FROM extractions AS e
JOIN (SELECT d.benchmark, d.task, count(*) AS n FROM docs AS d GROUP BY ALL) AS d USING (benchmark, task)
WHERE e.n_docs < d.n AND coalesce((e.settings ->> 'missing')::BIGINT, 0) = 0
    AND (e.benchmark, e.task) IN (SELECT w.benchmark, w.task FROM temp.imported AS w)
ORDER BY ALL
LIMIT 1;
