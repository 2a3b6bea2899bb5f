-- The first row of temp.given that belongs to no document, or to none of temp.partitions.
SELECT r.benchmark, r.task, r.doc_id, r.model, 'stands for no document' AS fault
FROM temp.given AS r ANTI JOIN docs AS d USING (benchmark, task, doc_id)
UNION ALL
SELECT r.benchmark, r.task, r.doc_id, r.model, 'belongs to none of the written partitions'
FROM temp.given AS r ANTI JOIN temp.partitions AS p USING (benchmark, task, model)
LIMIT 1;
