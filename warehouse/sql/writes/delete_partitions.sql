-- Deletes what is stored of temp.partitions; touches no file where nothing is stored.
CREATE OR REPLACE TEMP TABLE replaced AS
SELECT p.benchmark, p.task, p.model FROM temp.partitions AS p SEMI JOIN extractions AS e USING (benchmark, task, model);

DELETE FROM choice_logprobs WHERE (benchmark, task, model) IN (FROM temp.replaced);
DELETE FROM answer_passes WHERE (benchmark, task, model) IN (FROM temp.replaced);
DELETE FROM extractions WHERE (benchmark, task, model) IN (FROM temp.replaced);
