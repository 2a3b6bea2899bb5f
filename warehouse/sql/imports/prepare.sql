-- From temp tables docs, scores and canonical: the documents some model scored, the gaps, and a fingerprint a partition.
-- rule: how answers are compared; NULL by default. A split that is neither given nor stored (known_splits) is drawn within
-- the task: 80 % train, by a hash of the document's own id, or the first where the variable in_order is true.
CREATE OR REPLACE TEMP TABLE documents AS
WITH placed AS (
    SELECT
        d.* REPLACE (CASE WHEN d.label IS NULL THEN c.canonical ELSE d.gold END AS gold), d.gold AS given,
        coalesce(d.split, k.split) AS known,
        CASE WHEN getvariable('in_order') THEN '' ELSE sha256(to_json([d.task, coalesce(
            d.source_id, CASE WHEN getvariable('ids_are_texts') THEN d.question END, d.doc_id::VARCHAR
        )])::VARCHAR) END AS drawn
    FROM docs AS d SEMI JOIN scores AS s USING (benchmark, task, doc_id)
    LEFT JOIN canonical AS c ON c.answer = d.gold
    LEFT JOIN known_splits AS k USING (benchmark, task, doc_id)
),
ranked AS (
    SELECT
        p.*, row_number() OVER (PARTITION BY p.benchmark, p.task, p.known IS NULL ORDER BY p.drawn, p.doc_id) AS place,
        count(*) OVER task * 8 // 10 - count(*) FILTER (p.known = 'train') OVER task AS n_train
    FROM placed AS p
    WINDOW task AS (PARTITION BY p.benchmark, p.task)
)
SELECT
    p.row, p.benchmark, p.task, p.doc_id, p.question, p.choices, p.label,
    coalesce(p.gold, p.choices[p.label + 1]) AS gold,
    coalesce(
        p.doc_hash, sha256(to_json(
            [to_json(p.question), to_json(p.choices), to_json(p.given)]
            || CASE WHEN p.source_id IS NULL THEN [] ELSE [to_json(p.source_id)] END
        )::VARCHAR)
    ) AS doc_hash,
    p.confidential, p.prompt_hash, p.source_id, p.given,
    coalesce(p.known, CASE WHEN p.place <= p.n_train THEN 'train' ELSE 'test' END) AS split
FROM ranked AS p;

CREATE OR REPLACE TEMP TABLE gaps AS
SELECT d.benchmark, d.task, d.doc_id, d.row, m.model
FROM documents AS d
JOIN (SELECT DISTINCT benchmark, model FROM scores) AS m USING (benchmark)
ANTI JOIN scores AS s USING (benchmark, task, doc_id, model);

CREATE OR REPLACE TEMP TABLE partitions AS
WITH described AS (
    SELECT
        d.benchmark, d.task, count(*) AS n,
        string_agg(format('{}{}{}', d.doc_hash, d.label, d.split) || coalesce(d.prompt_hash, ''), ',' ORDER BY d.doc_id) AS identity
    FROM documents AS d GROUP BY ALL
),
said AS (
    SELECT
        s.benchmark, s.task, s.model, count(DISTINCT s.doc_id) AS n_docs,
        CASE WHEN count(s.choice_logprobs) > 0 THEN count(*) FILTER (
            len(list_filter(s.choice_logprobs, lambda x: x = list_max(s.choice_logprobs))) > 1
        ) END AS n_ties,
        string_agg(
            to_json([s.doc_id::VARCHAR, s.pass::VARCHAR, s.choice_logprobs::VARCHAR, s.answer])::VARCHAR
                || coalesce(to_json(s.text)::VARCHAR, '') || coalesce(s.n_tokens::VARCHAR, '')
                || coalesce(s.choice_tokens::VARCHAR, ''), ','
            ORDER BY s.doc_id, s.pass
        ) AS content
    FROM scores AS s GROUP BY ALL
)
SELECT
    d.benchmark, d.task, m.model, sha256(concat(d.identity, s.content, $rule)) AS fingerprint,
    coalesce(s.n_docs, 0) AS n_docs, d.n - coalesce(s.n_docs, 0) AS missing,
    s.n_ties
FROM described AS d
JOIN (SELECT DISTINCT benchmark, model FROM scores) AS m USING (benchmark)
LEFT JOIN said AS s USING (benchmark, task, model);
