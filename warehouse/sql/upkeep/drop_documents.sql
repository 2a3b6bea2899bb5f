-- Deletes the documents of temp.given's tasks.
DELETE FROM docs WHERE (benchmark, task) IN (SELECT benchmark, task FROM temp.given);
DELETE FROM doc_digests WHERE (benchmark, task) IN (SELECT benchmark, task FROM temp.given);
DELETE FROM prompts WHERE (benchmark, task) IN (SELECT benchmark, task FROM temp.given);
