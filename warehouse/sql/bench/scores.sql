-- What one model scored on them: its own noise, and a bonus for the right choice that hard documents lack. Multiples of
-- 1/256 compress well and tie now and then.
INSERT INTO choice_logprobs BY NAME
WITH scored AS (
    SELECT r.i // $choices AS i, (r.i % $choices)::INT AS choice FROM range($documents * $choices) AS r(i)
)
SELECT
    'made-up' AS benchmark, printf('task %02d', c.i * 57 // $documents) AS task, c.i AS doc_id,
    printf('model %03d', $model::INT) AS model, c.choice,
    -(hash((c.i * $choices + c.choice) * 1000 + $model) % 256 / 256
        + CASE
            WHEN hash(c.i) % $choices::UBIGINT = c.choice THEN 0
            ELSE hash(c.i + 1000000007) % 128 / 256
        END) AS logprob
FROM scored AS c;
