-- Two models over the documents both answered: who is better, and McNemar's exact p (two-sided). stderr: of the difference,
-- over documents.
CREATE OR REPLACE MACRO compare_models(benchmark, model_a, model_b, task := '*', split := '*', snapshot := 'now') AS TABLE
WITH paired AS (
    SELECT
        any_value({answered: m.answered, correct: m.correct, wrong: m.wrong}) FILTER (m.model = model_a) AS a,
        any_value({answered: m.answered, correct: m.correct, wrong: m.wrong}) FILTER (m.model = model_b) AS b
    FROM warehouse.model_bits(benchmark, [model_a, model_b], task, split, snapshot) AS m
),
counted AS (
    SELECT
        coalesce(bit_count(p.a.answered & p.b.answered), 0) AS n,
        coalesce(bit_count(p.a.correct & p.b.correct), 0) AS both_right,
        coalesce(bit_count(p.a.correct & p.b.wrong), 0) AS only_a,
        coalesce(bit_count(p.a.wrong & p.b.correct), 0) AS only_b
    FROM paired AS p
)
SELECT
    c.n, (c.both_right + c.only_a) / nullif(c.n, 0) AS accuracy_a, (c.both_right + c.only_b) / nullif(c.n, 0) AS accuracy_b,
    (c.only_a - c.only_b) / nullif(c.n, 0) AS difference,
    sqrt((c.only_a + c.only_b - (c.only_a - c.only_b)::DOUBLE ** 2 / nullif(c.n, 0)) / nullif(c.n - 1, 0) / nullif(c.n, 0))
        AS stderr,
    c.only_a, c.only_b, CASE WHEN c.n > 0 THEN warehouse.mcnemar_p(c.only_a, c.only_b) END AS mcnemar_p
FROM counted AS c;
