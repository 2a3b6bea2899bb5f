-- temp.replaced: those of temp.partitions that are stored already.
CREATE OR REPLACE TEMP TABLE replaced AS
SELECT p.benchmark, p.task, p.model FROM temp.partitions AS p SEMI JOIN extractions AS e USING (benchmark, task, model);
