-- How often two models give the same answer, right or wrong, over the documents both answered. Giving no answer agrees
-- with nothing. same_error: of the documents both get wrong, the share that they get wrong in the same way.
CREATE OR REPLACE MACRO agreement(benchmark, task := '*', split := '*', models := '*', snapshot := 'now') AS TABLE
WITH bits AS (
    SELECT m.model, m.answered, m.correct, m.wrong FROM warehouse.model_bits(benchmark, models, task, split, snapshot) AS m
),
counted AS (
    SELECT
        a.model AS model_a, b.model AS model_b, bit_count(a.answered & b.answered) AS n,
        bit_count(a.wrong & b.wrong) AS both_wrong, coalesce(bit_count(s.same), 0) AS same,
        coalesce(bit_count(s.same & a.wrong), 0) AS same_wrong
    FROM bits AS a JOIN bits AS b ON a.model < b.model
    LEFT JOIN warehouse.same_answers(benchmark, models, task, split, snapshot) AS s
        ON s.model_a = a.model AND s.model_b = b.model
)
SELECT c.model_a, c.model_b, c.n, c.same / c.n AS agreement, c.same_wrong / nullif(c.both_wrong, 0) AS same_error
FROM counted AS c
WHERE c.n > 0
ORDER BY model_a, model_b;
