-- What a reader sees of a warehouse of schema 1 to 9 that it may not upgrade: columns that it lacks are NULL.
CREATE OR REPLACE TEMP VIEW docs AS SELECT *, NULL::VARCHAR AS prompt_hash FROM warehouse.docs;
CREATE OR REPLACE TEMP VIEW extractions AS
SELECT *, NULL::VARCHAR AS fault, NULL::BIGINT AS n_ties FROM warehouse.extractions;
CREATE OR REPLACE TEMP VIEW prompts AS
SELECT
    ''::VARCHAR AS benchmark, ''::VARCHAR AS task, 0::BIGINT AS doc_id, ''::VARCHAR AS model, ''::VARCHAR AS prompt,
    NULL::STRUCT("role" VARCHAR, "content" VARCHAR)[] AS messages, NULL::VARCHAR[] AS continuations
WHERE false;
