-- What a reader sees of a warehouse of schema 1 to 8 that it may not upgrade: a column that it lacks is NULL.
CREATE OR REPLACE TEMP VIEW choice_logprobs AS
SELECT *, NULL::DOUBLE AS unconditional_logprob FROM warehouse.choice_logprobs;
