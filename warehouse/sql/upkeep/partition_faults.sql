-- Partitions whose rows do not match their record in `extractions`.
WITH answers AS (
    SELECT
        c.benchmark, c.task, c.model, count(*) AS n_rows, count(DISTINCT c.doc_id) AS n_docs,
        choice_logprobs_digest(c) AS digest, count(*) FILTER (d.doc_id IS NULL) AS n_stray,
        count(*) FILTER (is_impossible(c)) AS n_impossible
    FROM choice_logprobs AS c
    LEFT JOIN (SELECT DISTINCT benchmark, task, doc_id FROM docs) AS d USING (benchmark, task, doc_id)
    GROUP BY ALL
    UNION ALL
    SELECT
        p.benchmark, p.task, p.model, count(*), count(DISTINCT p.doc_id), answer_passes_digest(p),
        count(*) FILTER (d.doc_id IS NULL), 0
    FROM answer_passes AS p
    LEFT JOIN (SELECT DISTINCT benchmark, task, doc_id FROM docs) AS d USING (benchmark, task, doc_id)
    GROUP BY ALL
),
thoughts AS (
    SELECT
        t.benchmark, t.task, t.model, count(*) AS n_rows, traces_digest(t) AS digest,
        count(*) FILTER (is_impossible_trace(t)) AS n_impossible
    FROM traces AS t
    GROUP BY ALL
),
rows AS (
    SELECT
        benchmark, task, model, coalesce(a.n_rows, t.n_rows) AS n_rows, coalesce(a.n_docs, 0) AS n_docs,
        a.digest || coalesce('+' || t.digest, '') AS digest, coalesce(a.n_stray, 0) AS n_stray,
        coalesce(a.n_impossible, 0) + coalesce(t.n_impossible, 0) AS n_impossible
    FROM answers AS a FULL JOIN thoughts AS t USING (benchmark, task, model)
),
records AS (
    SELECT e.benchmark, e.task, e.model, count(*) AS n, any_value(e.n_docs) AS n_docs, any_value(e.digest) AS digest
    FROM extractions AS e
    GROUP BY ALL
),
compared AS (
    SELECT
        benchmark, task, model,
        CASE
            WHEN e.n IS NULL THEN format('has {} rows but no record of its extraction', r.n_rows)
            WHEN e.n > 1 THEN format('is recorded {} times', e.n)
            WHEN r.n_rows IS NULL AND e.n_docs > 0 THEN format('has no rows of its {} documents', e.n_docs)
            WHEN r.n_docs <> e.n_docs THEN format('has rows of {} documents, expected {}', r.n_docs, e.n_docs)
            WHEN r.n_stray > 0 THEN format('has {} rows of unknown documents', r.n_stray)
            WHEN r.n_impossible > 0 THEN format('has {} scores that are NaN, infinite or positive', r.n_impossible)
            WHEN r.digest IS NOT DISTINCT FROM e.digest OR r.n_rows IS NULL THEN NULL
            WHEN e.digest LIKE '%:%' AND split_part(e.digest, ':', 1) <> r.n_rows::VARCHAR
                THEN format('has {} rows, expected {}', r.n_rows, split_part(e.digest, ':', 1))
            ELSE 'was altered after it was written'
        END AS reason
    FROM rows AS r FULL JOIN records AS e USING (benchmark, task, model)
)
SELECT c.model, c.benchmark, c.task, c.reason FROM compared AS c WHERE c.reason IS NOT NULL
ORDER BY c.benchmark, c.task, c.model;
