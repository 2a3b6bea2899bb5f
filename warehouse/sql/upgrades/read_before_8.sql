-- What a reader sees of a warehouse of schema 1 to 7 that it may not upgrade: columns that it lacks are NULL.
CREATE OR REPLACE TEMP VIEW extractions AS
SELECT
    *, NULL::BIGINT AS n_prompt_tokens, NULL::BIGINT AS n_generated_tokens, NULL::DOUBLE AS tokens_per_second,
    NULL::BIGINT AS retries, NULL::VARCHAR AS gpus, NULL::VARCHAR AS host,
    NULL::VARCHAR AS fault, NULL::BIGINT AS n_ties
FROM warehouse.extractions;
