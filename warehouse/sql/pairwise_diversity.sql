-- Every two models of a benchmark, over the documents both answered; pairs without any are left out.
CREATE OR REPLACE MACRO pairwise_diversity(benchmark, task := '*', split := '*', models := '*', snapshot := 'now') AS TABLE
WITH bits AS (
    SELECT m.model, m.answered, m.correct, m.wrong FROM warehouse.model_bits(benchmark, models, task, split, snapshot) AS m
),
counted AS (
    SELECT
        a.model AS model_a, b.model AS model_b, bit_count(a.answered & b.answered) AS n,
        bit_count(a.correct & b.correct) AS both_right, bit_count(a.wrong & b.wrong) AS both_wrong,
        bit_count(a.correct & b.wrong) AS only_a
    FROM bits AS a JOIN bits AS b ON a.model < b.model
),
paired AS (
    SELECT c.*, c.n - c.both_right - c.both_wrong - c.only_a AS only_b FROM counted AS c WHERE c.n > 0
)
SELECT
    p.model_a, p.model_b, p.n, p.both_right, p.both_wrong, p.only_a, p.only_b,
    warehouse.q_statistic(p.both_right, p.both_wrong, p.only_a, p.only_b) AS q_statistic,
    warehouse.correlation(p.both_right, p.both_wrong, p.only_a, p.only_b) AS correlation,
    (p.only_a + p.only_b) / p.n AS disagreement,
    warehouse.pairwise_kappa(p.both_right, p.both_wrong, p.only_a, p.only_b) AS kappa,
    p.both_wrong / p.n AS double_fault,
    warehouse.cohens_kappa(p.both_right, p.both_wrong, p.only_a, p.only_b) AS cohens_kappa
FROM paired AS p
ORDER BY model_a, model_b;
