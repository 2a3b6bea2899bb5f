-- Tasks with documents that nothing can be right on, or that stand there twice.
SELECT
    d.benchmark, d.task, count(*) FILTER (d.label IS NULL AND d.gold IS NULL) AS n_without_label,
    count(*) - count(DISTINCT d.doc_id) AS n_twice
FROM docs AS d
GROUP BY ALL
HAVING n_without_label > 0 OR n_twice > 0
ORDER BY ALL;
