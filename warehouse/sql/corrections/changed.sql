-- temp.changed: the rows of temp.asked that are not stored so already. A label comes with the text of its choice.
CREATE OR REPLACE TEMP TABLE changed AS
WITH wanted AS (
    SELECT
        d.benchmark, d.task, d.doc_id, d.doc_hash, a.label::INT AS label,
        CASE WHEN a.label IS NULL THEN a.gold ELSE coalesce(d.choices[a.label + 1], d.gold) END AS gold,
        d.label AS label_now, d.gold AS gold_now
    FROM docs AS d JOIN temp.asked AS a USING (benchmark, task, doc_id)
)
SELECT
    w.benchmark, w.task, w.doc_id, w.doc_hash, w.label, w.gold,
    CASE WHEN c.doc_id IS NULL THEN w.label_now ELSE c.label_before END AS label_before,
    CASE WHEN c.doc_id IS NULL THEN w.gold_now ELSE c.gold_before END AS gold_before
FROM wanted AS w
LEFT JOIN corrections AS c USING (benchmark, task, doc_id, doc_hash)
WHERE (w.label, w.gold) IS DISTINCT FROM (w.label_now, w.gold_now);
