-- What leaves the warehouse, as temporary views named like its tables. The variables `benchmarks` and `models` say
-- what is asked for; temp.withheld holds the documents whose texts stay.

CREATE TEMP TABLE kept_benchmarks AS SELECT unnest(getvariable('benchmarks')) AS benchmark;
CREATE TEMP TABLE kept_models AS SELECT unnest(getvariable('models')) AS model;

-- A run is exported if every model that it chose from is.
CREATE TEMP TABLE kept_runs AS
SELECT DISTINCT e.run_id FROM warehouse.evaluations AS e
WHERE getvariable('whole_pool') OR list_has_all(getvariable('models'), e.models);

CREATE OR REPLACE TEMP VIEW models AS
SELECT m.* FROM warehouse.models AS m WHERE m.model IN (SELECT k.model FROM temp.kept_models AS k);

CREATE OR REPLACE TEMP VIEW benchmarks AS FROM warehouse.benchmarks SEMI JOIN temp.kept_benchmarks USING (benchmark);

CREATE OR REPLACE TEMP VIEW tasks AS FROM warehouse.tasks SEMI JOIN temp.kept_benchmarks USING (benchmark);

CREATE OR REPLACE TEMP VIEW docs AS
SELECT
    d.* REPLACE (
        CASE WHEN w.task IS NULL THEN d.question END AS question,
        CASE WHEN w.task IS NULL THEN d.choices END AS choices,
        CASE WHEN w.task IS NULL THEN d.gold END AS gold
    )
FROM warehouse.docs AS d
SEMI JOIN temp.kept_benchmarks USING (benchmark)
LEFT JOIN temp.withheld AS w USING (benchmark, task, doc_id);

-- A prompt holds the question.
CREATE OR REPLACE TEMP VIEW prompts AS
SELECT
    p.* REPLACE (
        CASE WHEN w.task IS NULL THEN p.prompt END AS prompt,
        CASE WHEN w.task IS NULL THEN p.messages END AS messages,
        CASE WHEN w.task IS NULL THEN p.continuations END AS continuations
    )
FROM warehouse.prompts AS p
SEMI JOIN temp.kept_benchmarks USING (benchmark)
LEFT JOIN temp.withheld AS w USING (benchmark, task, doc_id)
WHERE p.model = '*' OR p.model IN (SELECT k.model FROM temp.kept_models AS k);

-- A choice's tokens spell its text.
CREATE OR REPLACE TEMP VIEW choice_logprobs AS
SELECT c.* REPLACE (CASE WHEN w.task IS NULL THEN c.token_ids END AS token_ids)
FROM warehouse.choice_logprobs AS c
SEMI JOIN temp.kept_benchmarks USING (benchmark)
SEMI JOIN temp.kept_models USING (model)
LEFT JOIN temp.withheld AS w USING (benchmark, task, doc_id);

-- A model's text may repeat the question.
CREATE OR REPLACE TEMP VIEW answer_passes AS
SELECT p.* REPLACE (CASE WHEN w.task IS NULL THEN p.text END AS text)
FROM warehouse.answer_passes AS p
SEMI JOIN temp.kept_benchmarks USING (benchmark)
SEMI JOIN temp.kept_models USING (model)
LEFT JOIN temp.withheld AS w USING (benchmark, task, doc_id);

CREATE OR REPLACE TEMP VIEW extractions AS
SELECT e.* REPLACE (e.settings::VARCHAR AS settings, e.versions::VARCHAR AS versions)
FROM warehouse.extractions AS e
SEMI JOIN temp.kept_benchmarks USING (benchmark)
SEMI JOIN temp.kept_models USING (model);

CREATE OR REPLACE TEMP VIEW evaluations AS
SELECT e.* REPLACE (e.settings::VARCHAR AS settings)
FROM warehouse.evaluations AS e
SEMI JOIN temp.kept_benchmarks USING (benchmark)
SEMI JOIN temp.kept_runs USING (run_id);

CREATE OR REPLACE TEMP VIEW decisions AS
SELECT d.*, o.source_id
FROM warehouse.decisions AS d
LEFT JOIN warehouse.docs AS o USING (benchmark, task, doc_id)
SEMI JOIN temp.kept_benchmarks USING (benchmark)
SEMI JOIN temp.kept_runs USING (run_id);

CREATE OR REPLACE TEMP VIEW training_history AS
FROM warehouse.training_history
SEMI JOIN temp.kept_benchmarks USING (benchmark)
SEMI JOIN temp.kept_runs USING (run_id);

-- What `rlfocal import tables` needs beside the answers.
CREATE OR REPLACE TEMP VIEW doc_digests AS
FROM warehouse.doc_digests SEMI JOIN temp.kept_benchmarks USING (benchmark);

CREATE OR REPLACE TEMP VIEW corrections AS
SELECT
    c.* REPLACE (
        CASE WHEN w.task IS NULL THEN c.gold END AS gold,
        CASE WHEN w.task IS NULL THEN c.gold_before END AS gold_before
    )
FROM warehouse.corrections AS c
SEMI JOIN temp.kept_benchmarks USING (benchmark)
LEFT JOIN temp.withheld AS w USING (benchmark, task, doc_id);

CREATE OR REPLACE TEMP VIEW renames AS FROM warehouse.renames WHERE getvariable('whole_pool');

CREATE OR REPLACE TEMP VIEW ruled_out AS
FROM warehouse.ruled_out SEMI JOIN temp.kept_benchmarks USING (benchmark) WHERE getvariable('whole_pool');

CREATE OR REPLACE TEMP VIEW probe_estimates AS
FROM warehouse.probe_estimates SEMI JOIN temp.kept_benchmarks USING (benchmark) WHERE getvariable('whole_pool');

CREATE OR REPLACE TEMP VIEW promise_looks AS
FROM warehouse.promise_looks SEMI JOIN temp.kept_benchmarks USING (benchmark) WHERE getvariable('whole_pool');

-- The files that `rlfocal import predictions` takes.
CREATE OR REPLACE TEMP VIEW imported_docs AS
SELECT
    d.benchmark, d.task, d.doc_id, d.doc_hash, d.label, d.question, d.choices, d.gold, d.split, d.confidential,
    d.source_id
FROM temp.docs AS d;

CREATE OR REPLACE TEMP VIEW imported_models AS FROM temp.models;

CREATE OR REPLACE TEMP VIEW imported_scores AS
SELECT s.*, d.source_id
FROM (
    SELECT
        c.benchmark, c.task, c.doc_id, c.model, list(c.logprob ORDER BY c.choice) AS choice_logprobs,
        list(c.is_greedy ORDER BY c.choice) AS is_greedy, list(c.n_tokens ORDER BY c.choice) AS choice_tokens,
        NULL::VARCHAR AS answer, NULL::BIGINT AS pass, NULL::VARCHAR AS text, NULL::INT AS n_tokens,
        max(c.n_prompt_tokens) AS n_prompt_tokens
    FROM temp.choice_logprobs AS c
    GROUP BY ALL
    UNION ALL
    SELECT
        p.benchmark, p.task, p.doc_id, p.model, NULL::DOUBLE[] AS choice_logprobs, NULL::BOOLEAN[] AS is_greedy,
        NULL::INT[] AS choice_tokens, p.answer, p.pass, p.text, p.n_tokens, p.n_prompt_tokens
    FROM temp.answer_passes AS p
) AS s
LEFT JOIN temp.docs AS d USING (benchmark, task, doc_id);
