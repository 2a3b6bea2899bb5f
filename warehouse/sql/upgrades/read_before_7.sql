-- What a reader sees of a warehouse of schema 1 to 6 that it may not upgrade: columns that it lacks are NULL.
CREATE OR REPLACE TEMP VIEW evaluations AS
SELECT *, NULL::VARCHAR AS budget, NULL::DOUBLE AS mean_rounds FROM evaluations_before_7;
CREATE OR REPLACE TEMP VIEW decisions AS
SELECT *, NULL::STRUCT("model" VARCHAR, "round" INT)[] AS rounds, NULL::DOUBLE AS probability FROM warehouse.decisions;
CREATE OR REPLACE TEMP VIEW models AS
SELECT *, NULL::DOUBLE AS price_input, NULL::DOUBLE AS price_output FROM warehouse.models;
CREATE OR REPLACE TEMP VIEW answer_passes AS SELECT *, NULL::INT AS n_prompt_tokens FROM warehouse.answer_passes;
CREATE OR REPLACE TEMP VIEW ruled_out AS
SELECT ''::VARCHAR AS run_id, ''::VARCHAR AS benchmark, ''::VARCHAR AS method, ''::VARCHAR AS budget, ''::VARCHAR AS data
WHERE false;
