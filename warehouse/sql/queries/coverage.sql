-- Models ($2) by the tasks of a benchmark ($1): documents answered, documents there are, and accuracy by the view `accuracy`.
WITH offered AS (SELECT d.task, count(*) AS documents FROM docs AS d WHERE d.benchmark = $1 GROUP BY d.task)
SELECT m.model, o.task, coalesce(a.n, 0) AS n, o.documents, a.accuracy
FROM offered AS o CROSS JOIN (SELECT unnest($2::VARCHAR[]) AS model) AS m
LEFT JOIN accuracy AS a ON a.benchmark = $1 AND a.task = o.task AND a.model = m.model
ORDER BY o.task, m.model
