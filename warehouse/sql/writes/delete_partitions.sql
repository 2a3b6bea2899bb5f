-- Deletes the stored rows and records of temp.replaced.
DELETE FROM choice_logprobs WHERE (benchmark, task, model) IN (FROM temp.replaced);
DELETE FROM answer_passes WHERE (benchmark, task, model) IN (FROM temp.replaced);
DELETE FROM traces WHERE (benchmark, task, model) IN (FROM temp.replaced);
DELETE FROM extractions WHERE (benchmark, task, model) IN (FROM temp.replaced);
DELETE FROM prompts WHERE (benchmark, task, model) IN (FROM temp.replaced);
