-- For each task of temp.partitions: a stored document that the whole task lacks, or a model that answered the task when it
-- had more or fewer documents.
WITH counted AS (
    SELECT p.benchmark, p.task, p.n_whole, count(n.doc_id) AS n_given
    FROM temp.partitions AS p LEFT JOIN temp.given AS n USING (benchmark, task)
    GROUP BY ALL
),
other AS (
    SELECT d.benchmark, d.task, c.n_whole, d.doc_id, NULL AS model, NULL AS n_then
    FROM temp.stored AS d
    JOIN counted AS c USING (benchmark, task)
    ANTI JOIN temp.given AS n USING (benchmark, task, doc_id)
    WHERE c.n_given = c.n_whole
    UNION ALL
    SELECT e.benchmark, e.task, c.n_whole, NULL, e.model, e.n_whole
    FROM extractions AS e JOIN counted AS c USING (benchmark, task)
    WHERE e.n_whole <> c.n_whole
)
FROM other
QUALIFY row_number() OVER (PARTITION BY benchmark, task ORDER BY doc_id NULLS LAST, model, n_then) = 1
ORDER BY benchmark, task;
