-- Tasks with documents that have no label or gold answer, are duplicated, or were altered after they were written.
WITH stored AS (
    SELECT
        d.benchmark, d.task, count(*) FILTER (d.label IS NULL AND d.gold IS NULL) AS n_without_label,
        count(*) - count(DISTINCT d.doc_id) AS n_twice, docs_digest(d) AS digest
    FROM docs AS d
    GROUP BY ALL
)
SELECT
    benchmark, task, coalesce(s.n_without_label, 0), coalesce(s.n_twice, 0),
    s.digest IS DISTINCT FROM g.digest AS is_other
FROM stored AS s FULL JOIN doc_digests AS g USING (benchmark, task)
WHERE s.n_without_label > 0 OR s.n_twice > 0 OR is_other
ORDER BY ALL;
