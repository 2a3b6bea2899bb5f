-- The first row of temp.choices or temp.passes that belongs to no document, or to none of temp.partitions.
WITH answered AS (
    SELECT DISTINCT benchmark, task, doc_id, model FROM temp.choices
    UNION ALL
    SELECT DISTINCT benchmark, task, doc_id, model FROM temp.passes
)
SELECT r.benchmark, r.task, r.doc_id, r.model, 'stands for no document' AS fault
FROM answered AS r ANTI JOIN docs AS d USING (benchmark, task, doc_id)
UNION ALL
SELECT r.benchmark, r.task, r.doc_id, r.model, 'belongs to none of the written partitions'
FROM answered AS r ANTI JOIN temp.partitions AS p USING (benchmark, task, model)
LIMIT 1;
