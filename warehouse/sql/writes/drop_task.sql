-- Deletes the documents of temp.given's task and all that models answered to them; earlier snapshots keep it.
DELETE FROM choice_logprobs WHERE (benchmark, task) IN (SELECT benchmark, task FROM temp.given);
DELETE FROM answer_passes WHERE (benchmark, task) IN (SELECT benchmark, task FROM temp.given);
DELETE FROM traces WHERE (benchmark, task) IN (SELECT benchmark, task FROM temp.given);
DELETE FROM probe_answers WHERE (benchmark, task) IN (SELECT benchmark, task FROM temp.given);
DELETE FROM extractions WHERE (benchmark, task) IN (SELECT benchmark, task FROM temp.given);
DELETE FROM docs WHERE (benchmark, task) IN (SELECT benchmark, task FROM temp.given);
DELETE FROM temp.stored;
DELETE FROM doc_digests WHERE (benchmark, task) IN (SELECT benchmark, task FROM temp.given);
DELETE FROM prompts WHERE (benchmark, task) IN (SELECT benchmark, task FROM temp.given);
