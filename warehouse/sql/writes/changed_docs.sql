-- temp.changed: the tasks of temp.given with new documents, or with another split (of all), secrecy or first prompt_hash.
CREATE OR REPLACE TEMP TABLE changed AS
SELECT n.benchmark, n.task
FROM temp.given AS n
LEFT JOIN temp.stored AS d USING (benchmark, task, doc_id)
GROUP BY n.benchmark, n.task
HAVING count(*) > count(d.doc_id)
    OR bool_or(d.prompt_hash IS NULL AND n.prompt_hash IS NOT NULL)
    OR bool_or(coalesce(n.confidential, d.confidential, false) <> coalesce(d.confidential, false))
    OR bool_or(n.split IS DISTINCT FROM d.split) AND count(*) = (
        SELECT count(*) FROM temp.stored AS s WHERE (s.benchmark, s.task) = (n.benchmark, n.task)
    );
