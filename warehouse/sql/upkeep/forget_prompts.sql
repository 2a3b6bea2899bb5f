-- What documents of temp.given's tasks were asked is not known.
DELETE FROM prompts WHERE (benchmark, task) IN (SELECT benchmark, task FROM temp.given);
UPDATE docs SET prompt_hash = NULL WHERE (benchmark, task) IN (SELECT benchmark, task FROM temp.given);
