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
-- A row of its own: DuckDB binds a lambda over a column of a lateral call where it finds no other table.
asked AS (
    SELECT warehouse.name_list(of_task) AS tasks, warehouse.name_list(of_models) AS models
),
strangers AS (
    SELECT k.tasks, warehouse.first_unknown(a.tasks, k.tasks) AS task, warehouse.first_unknown(a.models, k.models) AS model
    FROM known AS k, asked AS a
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
-- asked about. code: equal, on one document, for equal answers; NULL for none. ahead, behind: a wrong answer that wins a tie with the right
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

-- The same as sets of documents, one bit each by its number: one row for each model and block of 1,000 documents (words.sql).
-- rank: the model's, by name. wrong: answered, not right. code: the binary digits of codes, the lowest first; models say
-- the same where both have said something and all digits are equal.
CREATE OR REPLACE MACRO model_words(of_benchmark, of_models, of_task, of_split, of_snapshot := 'now') AS TABLE
WITH words AS (
    SELECT
        a.model, a.number // 125 AS word, any_value(a.n_documents) AS n_documents,
        bit_or(warehouse.document_bit(a.number)) AS answered,
        bit_or(warehouse.document_bit(a.number)) FILTER (a.correct) AS correct,
        bit_or(warehouse.document_bit(a.number)) FILTER (NOT a.correct) AS wrong,
        bit_or(warehouse.document_bit(a.number)) FILTER (a.code IS NOT NULL) AS said,
        bit_or(warehouse.document_bit(a.number)) FILTER (a.ahead) AS ahead,
        bit_or(warehouse.document_bit(a.number)) FILTER (a.behind) AS behind,
        CASE WHEN max(a.code) < 4096 THEN max(a.code) WHEN max(a.code) IS NOT NULL THEN error('more than 4,096 different answers to one document') END AS largest_code,
        bit_or(warehouse.document_bit(a.number)) FILTER (a.code & 1 > 0) AS digit_0,
        bit_or(warehouse.document_bit(a.number)) FILTER (a.code & 2 > 0) AS digit_1,
        bit_or(warehouse.document_bit(a.number)) FILTER (a.code & 4 > 0) AS digit_2,
        bit_or(warehouse.document_bit(a.number)) FILTER (a.code & 8 > 0) AS digit_3,
        bit_or(warehouse.document_bit(a.number)) FILTER (a.code & 16 > 0) AS digit_4,
        bit_or(warehouse.document_bit(a.number)) FILTER (a.code & 32 > 0) AS digit_5,
        bit_or(warehouse.document_bit(a.number)) FILTER (a.code & 64 > 0) AS digit_6,
        bit_or(warehouse.document_bit(a.number)) FILTER (a.code & 128 > 0) AS digit_7,
        bit_or(warehouse.document_bit(a.number)) FILTER (a.code & 256 > 0) AS digit_8,
        bit_or(warehouse.document_bit(a.number)) FILTER (a.code & 512 > 0) AS digit_9,
        bit_or(warehouse.document_bit(a.number)) FILTER (a.code & 1024 > 0) AS digit_10,
        bit_or(warehouse.document_bit(a.number)) FILTER (a.code & 2048 > 0) AS digit_11
    FROM warehouse.numbered_answers(of_benchmark, of_models, of_task, of_split, of_snapshot) AS a
    GROUP BY ALL
),
digits AS (
    SELECT 1 + floor(log2(greatest(max(w.largest_code), 1)))::INT AS n_digits FROM words AS w
),
places AS (
    SELECT m.model, m.rank, b.block
    FROM (SELECT w.model, (row_number() OVER (ORDER BY w.model))::INT AS rank FROM words AS w GROUP BY w.model) AS m,
        (SELECT unnest(range((any_value(w.n_documents) + 999) // 1000))::INT AS block FROM words AS w) AS b
)
SELECT
    p.model, p.rank, p.block, warehouse.words_of(w.answered, w.word) AS answered,
    warehouse.words_of(w.correct, w.word) AS correct, warehouse.words_of(w.wrong, w.word) AS wrong,
    warehouse.words_of(w.said, w.word) AS said, warehouse.words_of(w.ahead, w.word) AS ahead,
    warehouse.words_of(w.behind, w.word) AS behind, [
        warehouse.words_of(w.digit_0, w.word), warehouse.words_of(w.digit_1, w.word), warehouse.words_of(w.digit_2, w.word),
        warehouse.words_of(w.digit_3, w.word), warehouse.words_of(w.digit_4, w.word), warehouse.words_of(w.digit_5, w.word),
        warehouse.words_of(w.digit_6, w.word), warehouse.words_of(w.digit_7, w.word), warehouse.words_of(w.digit_8, w.word),
        warehouse.words_of(w.digit_9, w.word), warehouse.words_of(w.digit_10, w.word), warehouse.words_of(w.digit_11, w.word)
    ][:any_value(d.n_digits)] AS code
FROM places AS p CROSS JOIN digits AS d LEFT JOIN words AS w ON w.model = p.model AND w.word // 8 = p.block
GROUP BY p.model, p.rank, p.block;
