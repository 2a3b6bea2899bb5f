-- And those marked confidential (since schema 2).
INSERT INTO temp.withheld
SELECT d.benchmark, d.task, d.doc_id
FROM warehouse.docs AS d ANTI JOIN temp.withheld USING (benchmark, task, doc_id)
WHERE d.confidential;
