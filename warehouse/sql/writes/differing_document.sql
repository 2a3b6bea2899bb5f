-- The first given document of each task that is not the one stored under its number.
SELECT
    n.benchmark, n.task, coalesce(d.source_id, n.doc_id::VARCHAR),
    coalesce(d.confidential, false) OR coalesce(n.confidential, false),
    d.doc_hash, n.doc_hash, d.choices, n.choices, d.label, n.label, d.gold, n.gold, d.question, n.question,
    d.prompt_hash, n.prompt_hash
FROM temp.given AS n
JOIN temp.stored AS d USING (benchmark, task, doc_id)
WHERE (d.doc_hash, d.choices, d.label, d.gold) IS DISTINCT FROM (n.doc_hash, n.choices, n.label, n.gold)
    OR d.prompt_hash <> n.prompt_hash -- NULL: it is not known, as of imports
QUALIFY row_number() OVER (PARTITION BY n.benchmark, n.task ORDER BY n.doc_id) = 1
ORDER BY n.benchmark, n.task;
