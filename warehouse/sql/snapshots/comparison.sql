-- When two answers differ: the same rules for the answers of two snapshots, and for those of documents asked again.
-- Whether a model computed in 16 bits, was quantised, or was asked from a service that names no precision.
CREATE OR REPLACE TEMP MACRO has_low_precision(settings, backend) AS coalesce(
    (settings ->> 'dtype') IN ('bfloat16', 'float16') OR (settings ->> 'quantization') IS NOT NULL
        OR (settings ->> 'dtype') IS NULL AND backend IN ('openai', 'chat'),
    false
);

-- By how many nats a log-prob changed; 0 where both are minus infinity.
CREATE OR REPLACE TEMP MACRO logprob_change(before, after) AS CASE WHEN before = after THEN 0 ELSE after - before END;

-- By how many nats the log-prob of a choice of n tokens may change, if that of one token may by `allowed`.
CREATE OR REPLACE TEMP MACRO allowed_change(allowed, n_tokens) AS allowed * sqrt(greatest(coalesce(n_tokens, 1), 1));
