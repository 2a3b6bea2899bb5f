-- temp.asked: the given rows (asked_rows). A document that is named by its source_id alone gets its doc_id.
CREATE OR REPLACE TEMP TABLE asked AS
SELECT a.* REPLACE (coalesce(a.doc_id, d.doc_id) AS doc_id)
FROM asked_rows AS a
LEFT JOIN (
    SELECT s.benchmark, s.task, s.source_id, min(s.doc_id) AS doc_id FROM docs AS s GROUP BY ALL HAVING count(*) = 1
) AS d USING (benchmark, task, source_id);
