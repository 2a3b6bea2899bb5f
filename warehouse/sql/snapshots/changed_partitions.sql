-- temp.changed: what became of each partition with answers in the catalogues `before` or `warehouse`, and by how much the
-- log-prob of a token may differ. `rewritten`: other answers, although its record says that it was not extracted again.
-- Hashed twice: DuckDB combines the columns of one hash by XOR, and XOR over rows would lose which values belong together.
CREATE OR REPLACE TEMP MACRO answer_digests(catalogue) AS TABLE
SELECT c.model, c.benchmark, c.task, count(*) AS n, bit_xor(hash(hash(c.doc_id, c.choice, c.logprob))) AS digest
FROM query(concat('FROM ', catalogue, '.choice_logprobs')) AS c
GROUP BY ALL
UNION ALL
SELECT p.model, p.benchmark, p.task, count(*) AS n, bit_xor(hash(hash(p.doc_id, p.pass, p.text, p.answer))) AS digest
FROM query(concat('FROM ', catalogue, '.answer_passes')) AS p
GROUP BY ALL;

CREATE OR REPLACE TEMP TABLE changed AS
WITH records AS (
    SELECT
        model, benchmark, task, b.extraction_id IS DISTINCT FROM a.extraction_id AS again,
        {backend: b.backend, settings: b.settings, versions: b.versions} AS ran_before,
        {backend: a.backend, settings: a.settings, versions: a.versions} AS ran_after
    FROM before.extractions AS b JOIN warehouse.extractions AS a USING (model, benchmark, task)
),
ran AS (
    SELECT
        r.*,
        has_low_precision(r.ran_before.settings, r.ran_before.backend)
            OR has_low_precision(r.ran_after.settings, r.ran_after.backend) AS low_precision
    FROM records AS r
),
relabelled AS (
    SELECT DISTINCT d.benchmark, d.task
    FROM before.docs AS b JOIN warehouse.docs AS d USING (benchmark, task, doc_id)
    WHERE b.label IS DISTINCT FROM d.label OR b.gold IS DISTINCT FROM d.gold
),
compared AS (
    SELECT
        model, benchmark, task, r.ran_before, r.ran_after, coalesce(r.low_precision, false) AS low_precision,
        CASE
            WHEN b.n IS NULL THEN 'added'
            WHEN a.n IS NULL THEN 'removed'
            WHEN coalesce(r.again, true) THEN 'replaced'
            WHEN a.n <> b.n OR a.digest <> b.digest THEN 'rewritten'
            WHEN l.task IS NOT NULL THEN 'relabelled'
            ELSE 'same'
        END AS change
    FROM answer_digests('before') AS b
    FULL JOIN answer_digests('warehouse') AS a USING (model, benchmark, task)
    LEFT JOIN ran AS r USING (model, benchmark, task)
    LEFT JOIN relabelled AS l USING (benchmark, task)
)
SELECT
    c.*,
    CASE WHEN c.change = 'rewritten' THEN 0 WHEN c.low_precision THEN $low ELSE $full END AS allowed
FROM compared AS c
WHERE $benchmark IS NULL OR c.benchmark = $benchmark;
