-- Every two models of a benchmark, over the documents both answered; pairs without any are left out.
CREATE OR REPLACE MACRO pairwise_diversity(benchmark, task := '*', split := '*', models := '*', snapshot := 'now') AS TABLE
WITH words AS (
    SELECT m.model, m.block, m.answered, m.correct, m.wrong
    FROM warehouse.model_words(benchmark, models, task, split, snapshot) AS m
),
counted AS (
    SELECT
        a.model AS model_a, b.model AS model_b, sum(warehouse.n_common(a.answered, b.answered))::BIGINT AS n,
        sum(warehouse.n_common(a.correct, b.correct))::BIGINT AS both_right,
        sum(warehouse.n_common(a.wrong, b.wrong))::BIGINT AS both_wrong, sum(warehouse.n_common(a.correct, b.wrong))::BIGINT AS only_a
    FROM words AS a JOIN words AS b ON a.block = b.block AND a.model < b.model
    GROUP BY a.model, b.model
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
