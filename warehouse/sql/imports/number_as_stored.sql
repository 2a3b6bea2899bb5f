-- Documents whose ids are texts get the numbers that they have in the warehouse (temp.stored_ids), and new ones those after.
CREATE OR REPLACE TEMP TABLE numbers AS
WITH highest AS (SELECT s.benchmark, s.task, max(s.doc_id) AS doc_id FROM stored_ids AS s GROUP BY ALL)
SELECT
    d.benchmark, d.task, d.doc_id AS given,
    coalesce(s.doc_id, h.doc_id + row_number() OVER (
        PARTITION BY d.benchmark, d.task, s.doc_id IS NULL ORDER BY d.doc_id
    )) AS doc_id
FROM docs AS d JOIN highest AS h USING (benchmark, task) LEFT JOIN stored_ids AS s USING (benchmark, task, source_id);

UPDATE docs AS d SET doc_id = n.doc_id FROM numbers AS n
WHERE (d.benchmark, d.task, d.doc_id) = (n.benchmark, n.task, n.given);

UPDATE scores AS s SET doc_id = n.doc_id FROM numbers AS n
WHERE (s.benchmark, s.task, s.doc_id) = (n.benchmark, n.task, n.given);
