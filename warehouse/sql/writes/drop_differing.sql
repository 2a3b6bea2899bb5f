-- Deletes the documents of temp.differing's tasks and all that models answered to them; earlier snapshots keep these.
DELETE FROM choice_logprobs WHERE (benchmark, task) IN (FROM temp.differing);
DELETE FROM answer_passes WHERE (benchmark, task) IN (FROM temp.differing);
DELETE FROM traces WHERE (benchmark, task) IN (FROM temp.differing);
DELETE FROM probe_answers WHERE (benchmark, task) IN (FROM temp.differing);
DELETE FROM extractions WHERE (benchmark, task) IN (FROM temp.differing);
DELETE FROM docs WHERE (benchmark, task) IN (FROM temp.differing);
DELETE FROM temp.stored WHERE (benchmark, task) IN (FROM temp.differing);
DELETE FROM doc_digests WHERE (benchmark, task) IN (FROM temp.differing);
DELETE FROM prompts WHERE (benchmark, task) IN (FROM temp.differing);
