-- temp.compared: every partition with answers in the catalogues `before` or `warehouse`, what became of it, and by how
-- much the log-prob of a token may differ. `rewritten`: its record says that it was not extracted again.
-- Hashed twice: DuckDB combines the columns of one hash by XOR, and XOR over rows would lose which values belong together.
CREATE OR REPLACE TEMP MACRO answer_digests(catalogue) AS TABLE
SELECT c.model, c.benchmark, c.task, count(*) AS n, bit_xor(hash(hash(c.doc_id, c.choice, c.logprob))) AS digest
FROM query(concat('FROM ', catalogue, '.choice_logprobs')) AS c
GROUP BY ALL
UNION ALL
SELECT p.model, p.benchmark, p.task, count(*) AS n, bit_xor(hash(hash(p.doc_id, p.pass, p.text, p.answer))) AS digest
FROM query(concat('FROM ', catalogue, '.answer_passes')) AS p
GROUP BY ALL;

CREATE OR REPLACE TEMP TABLE compared AS
WITH records AS (
    SELECT
        model, benchmark, task, coalesce(b.extraction_id = a.extraction_id, false) AS rewritten,
        {backend: b.backend, settings: b.settings, versions: b.versions} AS ran_before,
        {backend: a.backend, settings: a.settings, versions: a.versions} AS ran_after
    FROM before.extractions AS b JOIN warehouse.extractions AS a USING (model, benchmark, task)
),
ran AS (
    SELECT
        r.*,
        list_bool_or(list_transform([r.ran_before, r.ran_after], lambda ran: coalesce(
            (ran.settings ->> 'dtype') IN ('bfloat16', 'float16') OR (ran.settings ->> 'quantization') IS NOT NULL
                OR (ran.settings ->> 'dtype') IS NULL AND ran.backend = 'openai',
            false
        ))) AS low_precision
    FROM records AS r
)
SELECT
    model, benchmark, task,
    CASE
        WHEN b.n IS NULL THEN 'new'
        WHEN a.n IS NULL THEN 'gone'
        WHEN a.n = b.n AND a.digest = b.digest THEN 'same'
        ELSE 'moved'
    END AS change,
    coalesce(r.rewritten, false) AS rewritten, coalesce(r.low_precision, false) AS low_precision,
    CASE WHEN r.rewritten THEN 0 WHEN r.low_precision THEN $low ELSE $full END AS allowed,
    r.ran_before, r.ran_after
FROM answer_digests('before') AS b
FULL JOIN answer_digests('warehouse') AS a USING (model, benchmark, task)
LEFT JOIN ran AS r USING (model, benchmark, task);
