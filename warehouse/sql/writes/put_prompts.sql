-- Writes the prompts of temp.asked that are not stored yet: their documents have the hash of these.
INSERT INTO prompts BY NAME
SELECT a.* FROM temp.asked AS a ANTI JOIN prompts AS p USING (benchmark, task, doc_id, model)
ORDER BY a.task, a.model, a.doc_id;
