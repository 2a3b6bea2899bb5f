-- Forgets the prompts of the documents of temp.given's tasks.
DELETE FROM prompts WHERE (benchmark, task) IN (SELECT benchmark, task FROM temp.given);
UPDATE docs SET prompt_hash = NULL WHERE (benchmark, task) IN (SELECT benchmark, task FROM temp.given);
