-- What every macro below reads, with one way to refuse names. Macros name what they read with its catalogue, so that they
-- work whatever is in use; a parameter hides a column of its name, so columns are always qualified.

-- A table or view as `query` takes it: as it is ('now'), or as it was in a snapshot or at a time, with the columns that it
-- has today.
CREATE OR REPLACE MACRO at_snapshot(name, snapshot) AS
    CASE
        WHEN snapshot IS NULL THEN error('name a snapshot by its number or a time, not NULL')
        WHEN snapshot::VARCHAR = 'now' THEN concat('FROM warehouse.', name)
        ELSE concat('FROM warehouse.', name, ' AT (', CASE
            WHEN TRY_CAST(snapshot::VARCHAR AS UBIGINT) IS NOT NULL THEN concat('VERSION => ', snapshot::VARCHAR::UBIGINT)
            WHEN TRY_CAST(snapshot::VARCHAR AS TIMESTAMPTZ) IS NULL
                THEN error(concat('snapshot ', snapshot::VARCHAR, ' is neither a number from 0, nor a time such as 2026-11-24 12:00'))
            ELSE concat('TIMESTAMP => TIMESTAMPTZ ''', snapshot::VARCHAR::TIMESTAMPTZ, '''')
        END, ') UNION ALL BY NAME (FROM warehouse.', name, ' LIMIT 0)')
    END;

-- What a parameter names, one text or a list, as a list.
CREATE OR REPLACE MACRO name_list(names) AS
    CASE WHEN typeof(names) LIKE '%[]' THEN TRY_CAST(names AS VARCHAR[]) ELSE [names::VARCHAR] END;

-- Whether a parameter names something: '*' names everything.
CREATE OR REPLACE MACRO is_named(names, name) AS
    list_contains(warehouse.name_list(names), '*') OR list_contains(warehouse.name_list(names), name);

-- Names of single models, as a list: '*' is none.
CREATE OR REPLACE MACRO each_named(names) AS
    CASE
        WHEN list_contains(warehouse.name_list(names), '*') THEN error('name each model: * is none')
        ELSE warehouse.name_list(names)
    END;

-- The first name that is not known, NULL included; NULL where all are.
CREATE OR REPLACE MACRO first_unknown(names, known) AS
    list_filter(
        list_transform(warehouse.name_list(names), lambda n: coalesce(n, 'NULL')),
        lambda n: n <> '*' AND NOT coalesce(list_contains(known, n), false)
    )[1];

-- Why names cannot be used; NULL where they can.
CREATE OR REPLACE MACRO refusals(of_benchmark, of_models, of_task, of_split, of_snapshot := 'now') AS TABLE
WITH known AS (
    SELECT
        (SELECT list(DISTINCT d.task) FROM query(warehouse.at_snapshot('docs', of_snapshot)) AS d WHERE d.benchmark = of_benchmark) AS tasks,
        (SELECT list(DISTINCT e.model) FROM query(warehouse.at_snapshot('extractions', of_snapshot)) AS e WHERE e.benchmark = of_benchmark) AS models
),
strangers AS (
    SELECT
        k.tasks, warehouse.first_unknown(of_task, k.tasks) AS task, warehouse.first_unknown(of_models, k.models) AS model
    FROM known AS k
)
SELECT
    CASE
        WHEN of_benchmark IS NULL THEN 'name a benchmark, not NULL'
        WHEN s.tasks IS NULL THEN concat('no benchmark ', of_benchmark, ' (`SELECT DISTINCT benchmark FROM docs`)')
        WHEN of_split IS NULL OR of_split NOT IN ('*', 'train', 'test')
            THEN concat('split ', coalesce(of_split::VARCHAR, 'NULL'), ' is neither train nor test, nor * for both')
        WHEN len(warehouse.name_list(of_task)) = 0 THEN 'name at least one task, or * for all'
        WHEN s.task IS NOT NULL THEN concat('no task ', s.task, ' in benchmark ', of_benchmark)
        WHEN len(warehouse.name_list(of_models)) = 0 THEN 'name at least one model, or * for all'
        WHEN s.model IS NOT NULL THEN concat(
            'nothing of model ', s.model, ' on benchmark ', of_benchmark,
            CASE WHEN EXISTS (
                SELECT 1 FROM warehouse.probe_answers AS p WHERE p.model = s.model AND p.benchmark = of_benchmark
            ) THEN ' but what a probe asked (`FROM probes`)' END
        )
    END AS refusal
FROM strangers AS s;

-- One row for each model and document that it answered. number: the document's, from 0, among the n_documents
-- asked about. code:
-- equal, on one document, for equal answers; NULL for none. ahead, behind: a wrong answer that wins a tie with the right
-- one if all who give the latter come later by name, or whoever comes first.
CREATE OR REPLACE MACRO numbered_answers(of_benchmark, of_models, of_task, of_split, of_snapshot := 'now') AS TABLE
WITH documents AS (
    SELECT
        d.task, d.doc_id, d.label, d.gold, (row_number() OVER (ORDER BY d.task, d.doc_id) - 1)::INT AS number,
        (count(*) OVER ())::INT AS n_documents
    FROM query(warehouse.at_snapshot('docs', of_snapshot)) AS d
    WHERE d.benchmark = of_benchmark AND of_split IN ('*', d.split)
        AND warehouse.is_named(of_task, d.task)
),
-- Joins come after the first aggregation, which is over documents × models × choices.
chosen AS (
    SELECT
        c.task, c.doc_id, c.model,
        CASE WHEN count(c.unanswered) = 0 THEN arg_max(c.choice, {l: c.logprob, first: -c.choice}) END AS prediction
    FROM query(warehouse.at_snapshot('choice_logprobs', of_snapshot)) AS c
    WHERE c.benchmark = of_benchmark AND warehouse.is_named(of_models, c.model)
    GROUP BY ALL
    HAVING bool_and(coalesce(isfinite(c.logprob) AND coalesce(c.logprob <= 1e-6 * c.n_tokens, true), false))
),
given AS (
    SELECT p.task, p.doc_id, p.model, p.answer, count(*) AS passes, min(p.pass) AS earliest
    FROM query(warehouse.at_snapshot('answer_passes', of_snapshot)) AS p
    WHERE p.benchmark = of_benchmark AND warehouse.is_named(of_models, p.model)
    GROUP BY ALL
),
answered AS (
    SELECT
        g.task, g.doc_id, g.model,
        arg_max(g.answer, {n: g.passes, first: -g.earliest}) FILTER (g.answer IS NOT NULL) AS answer
    FROM given AS g
    GROUP BY ALL
),
answer_codes AS (
    SELECT a.task, a.doc_id, a.answer, (row_number() OVER (PARTITION BY a.task, a.doc_id) - 1)::INT AS code
    FROM (SELECT DISTINCT n.task, n.doc_id, n.answer FROM answered AS n WHERE n.answer IS NOT NULL) AS a
),
judged AS (
    SELECT
        d.task, d.doc_id, d.number, d.n_documents, c.model, c.prediction, NULL::VARCHAR AS answer, c.prediction AS code,
        coalesce(c.prediction = d.label, false) AS correct, coalesce(c.prediction < d.label, false) AS lower
    FROM chosen AS c JOIN documents AS d USING (task, doc_id)
    UNION ALL
    SELECT d.task, d.doc_id, d.number, d.n_documents, a.model, NULL, a.answer, k.code, coalesce(a.answer = d.gold, false), NULL
    FROM answered AS a JOIN documents AS d USING (task, doc_id) LEFT JOIN answer_codes AS k USING (task, doc_id, answer)
)
SELECT
    j.task, j.doc_id, j.number, j.n_documents, j.model, j.prediction, j.answer, j.code, j.correct,
    NOT j.correct AND coalesce(j.lower, j.answer IS NOT NULL) AS ahead, coalesce(j.lower, false) AS behind
FROM judged AS j
UNION ALL
SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
FROM warehouse.refusals(of_benchmark, of_models, of_task, of_split, of_snapshot) AS r
WHERE CASE WHEN r.refusal IS NOT NULL THEN error(r.refusal) ELSE false END;

-- One bit string from those of blocks of 64 documents, of which NULL stands for zeros.
CREATE OR REPLACE MACRO joined_bits(bits, block) AS
    string_agg(coalesce(bits, bitstring('0', 64))::VARCHAR, '' ORDER BY block)::BIT;

-- The same as bits, one for each document, in the order of their numbers: one row a model. wrong: answered, not right.
CREATE OR REPLACE MACRO model_bits(of_benchmark, of_models, of_task, of_split, of_snapshot := 'now') AS TABLE
WITH blocks AS (
    SELECT
        a.model, a.number // 64 AS block, any_value(a.n_documents) AS n_documents,
        bitstring_agg(a.number % 64, 0, 63) AS answered,
        bitstring_agg(a.number % 64, 0, 63) FILTER (a.correct) AS correct,
        bitstring_agg(a.number % 64, 0, 63) FILTER (NOT a.correct) AS wrong,
        bitstring_agg(a.number % 64, 0, 63) FILTER (a.code IS NOT NULL) AS said,
        bitstring_agg(a.number % 64, 0, 63) FILTER (a.ahead) AS ahead,
        bitstring_agg(a.number % 64, 0, 63) FILTER (a.behind) AS behind
    FROM warehouse.numbered_answers(of_benchmark, of_models, of_task, of_split, of_snapshot) AS a
    GROUP BY ALL
),
every_block AS (
    SELECT m.model, b.block
    FROM (SELECT DISTINCT model FROM blocks) AS m, (SELECT unnest(range((any_value(n_documents) + 63) // 64)) AS block FROM blocks) AS b
)
SELECT
    e.model, warehouse.joined_bits(b.answered, e.block) AS answered, warehouse.joined_bits(b.correct, e.block) AS correct,
    warehouse.joined_bits(b.wrong, e.block) AS wrong, warehouse.joined_bits(b.said, e.block) AS said,
    warehouse.joined_bits(b.ahead, e.block) AS ahead, warehouse.joined_bits(b.behind, e.block) AS behind
FROM every_block AS e LEFT JOIN blocks AS b USING (model, block)
GROUP BY e.model;

-- On which documents two models say the same: one row a pair of models that have documents in common.
CREATE OR REPLACE MACRO same_answers(of_benchmark, of_models, of_task, of_split, of_snapshot := 'now') AS TABLE
WITH answers AS (
    SELECT a.model, a.number, a.n_documents, a.code
    FROM warehouse.numbered_answers(of_benchmark, of_models, of_task, of_split, of_snapshot) AS a
    WHERE a.code IS NOT NULL
),
digits AS (
    SELECT unnest(range(1 + floor(log2(greatest(max(code), 1)))::INT))::INT AS digit FROM answers
),
blocks AS (
    SELECT
        a.model, d.digit, a.number // 64 AS block, any_value(a.n_documents) AS n_documents,
        bitstring_agg(a.number % 64, 0, 63) AS said,
        bitstring_agg(a.number % 64, 0, 63) FILTER ((a.code >> d.digit) & 1 = 1) AS bits
    FROM answers AS a, digits AS d
    GROUP BY ALL
),
every_block AS (
    SELECT m.model, m.digit, b.block
    FROM (SELECT DISTINCT model, digit FROM blocks) AS m, (SELECT unnest(range((any_value(n_documents) + 63) // 64)) AS block FROM blocks) AS b
),
codes AS (
    SELECT
        e.model, e.digit, warehouse.joined_bits(b.said, e.block) AS said, warehouse.joined_bits(b.bits, e.block) AS bits
    FROM every_block AS e LEFT JOIN blocks AS b USING (model, digit, block)
    GROUP BY ALL
)
SELECT
    a.model AS model_a, b.model AS model_b, any_value(a.said & b.said) & ~bit_or(xor(a.bits, b.bits)) AS same
FROM codes AS a JOIN codes AS b USING (digit)
WHERE a.model < b.model
GROUP BY ALL;
