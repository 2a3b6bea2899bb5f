-- temp.changed: the tasks whose documents were written before schema 4.
CREATE OR REPLACE TEMP TABLE changed AS
SELECT DISTINCT d.benchmark, d.task FROM docs AS d ANTI JOIN doc_digests AS g USING (benchmark, task);
