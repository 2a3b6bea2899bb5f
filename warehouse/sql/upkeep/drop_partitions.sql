-- Deletes the partitions of temp.dropped.
DELETE FROM choice_logprobs WHERE (model, benchmark, task) IN (SELECT model, benchmark, task FROM temp.dropped);
DELETE FROM answer_passes WHERE (model, benchmark, task) IN (SELECT model, benchmark, task FROM temp.dropped);
DELETE FROM extractions WHERE (model, benchmark, task) IN (SELECT model, benchmark, task FROM temp.dropped);
DELETE FROM prompts WHERE (model, benchmark, task) IN (SELECT model, benchmark, task FROM temp.dropped);
