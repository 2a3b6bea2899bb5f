-- How often two models give the same answer, right or wrong, over the documents both answered. Giving no answer agrees
-- with nothing. same_error: of the documents both get wrong, the share that they get wrong in the same way.
CREATE OR REPLACE MACRO agreement(benchmark, task := '*', split := '*', models := '*', snapshot := 'now') AS TABLE
WITH words AS (
    FROM warehouse.model_words(benchmark, models, task, split, snapshot)
),
same_words AS (
    SELECT
        a.model AS model_a, b.model AS model_b, a.wrong AS wrong_a, warehouse.words_same(a, b) AS same,
        warehouse.n_common(a.answered, b.answered) AS n, warehouse.n_common(a.wrong, b.wrong) AS both_wrong
    FROM words AS a JOIN words AS b ON a.block = b.block AND a.model < b.model
),
counted AS (
    SELECT
        s.model_a, s.model_b, sum(s.n)::BIGINT AS n, sum(s.both_wrong)::BIGINT AS both_wrong,
        sum(warehouse.n_common(s.same, s.same))::BIGINT AS same, sum(warehouse.n_common(s.same, s.wrong_a))::BIGINT AS same_wrong
    FROM same_words AS s
    GROUP BY s.model_a, s.model_b
)
SELECT c.model_a, c.model_b, c.n, c.same / c.n AS agreement, c.same_wrong / nullif(c.both_wrong, 0) AS same_error
FROM counted AS c
WHERE c.n > 0
ORDER BY model_a, model_b;
