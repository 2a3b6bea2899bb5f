-- Writes the documents of temp.given in the tasks of temp.changed.
CREATE OR REPLACE TEMP TABLE written AS
SELECT n.* REPLACE (
    coalesce(n.confidential, d.confidential, false) AS confidential,
    coalesce(n.prompt_hash, d.prompt_hash) AS prompt_hash,
    coalesce(n.source_id, d.source_id) AS source_id
)
FROM temp.given AS n
SEMI JOIN temp.changed USING (benchmark, task)
LEFT JOIN temp.stored AS d USING (benchmark, task, doc_id);

DELETE FROM docs
WHERE (benchmark, task) IN (FROM temp.changed)
    AND (benchmark, task, doc_id) IN (SELECT benchmark, task, doc_id FROM temp.given);

INSERT INTO docs BY NAME FROM temp.written;
