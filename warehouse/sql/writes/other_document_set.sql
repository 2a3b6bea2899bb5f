-- A stored document that the whole task lacks, or a model that answered the task when it had more or fewer documents.
SELECT d.benchmark, d.task, d.doc_id, NULL AS model, NULL AS n_then
FROM temp.stored AS d
WHERE d.doc_id NOT IN (SELECT n.doc_id FROM temp.given AS n)
    AND (SELECT count(*) FROM temp.given) = $n_whole
UNION ALL
SELECT e.benchmark, e.task, NULL, e.model, e.n_whole
FROM extractions AS e
WHERE (e.benchmark, e.task) IN (SELECT n.benchmark, n.task FROM temp.given AS n) AND e.n_whole <> $n_whole
ORDER BY ALL NULLS LAST
LIMIT 1;
