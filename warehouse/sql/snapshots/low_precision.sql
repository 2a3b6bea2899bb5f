-- Whether a model computed in 16 bits, was quantised, or was asked from a service that names no precision.
CREATE OR REPLACE TEMP MACRO has_low_precision(settings, backend) AS coalesce(
    (settings ->> 'dtype') IN ('bfloat16', 'float16') OR (settings ->> 'quantization') IS NOT NULL
        OR (settings ->> 'dtype') IS NULL AND backend IN ('openai', 'chat'),
    false
);
