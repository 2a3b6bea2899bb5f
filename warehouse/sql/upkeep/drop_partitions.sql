-- Deletes the partitions of temp.given.
DELETE FROM choice_logprobs WHERE (model, benchmark, task) IN (SELECT model, benchmark, task FROM temp.given);
DELETE FROM answer_passes WHERE (model, benchmark, task) IN (SELECT model, benchmark, task FROM temp.given);
DELETE FROM traces WHERE (model, benchmark, task) IN (SELECT model, benchmark, task FROM temp.given);
DELETE FROM extractions WHERE (model, benchmark, task) IN (SELECT model, benchmark, task FROM temp.given);
DELETE FROM prompts WHERE (model, benchmark, task) IN (SELECT model, benchmark, task FROM temp.given);
