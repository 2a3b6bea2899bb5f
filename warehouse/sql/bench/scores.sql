-- What one model scored on them: its own noise, and a bonus for the right choice that hard documents lack. Multiples of
-- 1/256 compress well and tie now and then.
INSERT INTO choice_logprobs BY NAME
SELECT
    'made-up' AS benchmark, printf('task %04d', t.i // 250) AS task, t.i % 250 AS doc_id,
    printf('model %03d', $model::INT) AS model, c.i::INT AS choice,
    -((hash((t.i * $choices + c.i) * 1000 + $model) % 256) / 256
        + CASE WHEN hash(t.i) % $choices = c.i THEN 0 ELSE (hash(t.i + 1000000007) % 128) / 256 END)::DOUBLE AS logprob
FROM range($documents) AS t(i), range($choices) AS c(i)
ORDER BY t.i, c.i;
