-- Every two models of a benchmark, over the documents both answered; an unknown benchmark is an error.
-- A parameter hides a column of its name, so columns are always qualified here.
CREATE OR REPLACE MACRO pairwise_diversity(benchmark, task := '*', split := '*') AS TABLE
WITH answered AS (
    SELECT p.task AS of_task, p.doc_id, p.model, p.correct
    FROM outcomes AS p
    WHERE p.benchmark = benchmark AND (task = '*' OR p.task = task) AND (split = '*' OR p.split = split)
),
counted AS (
    SELECT
        a.model AS model_a, b.model AS model_b, count(*) AS n,
        count(*) FILTER (a.correct AND b.correct) AS both_right,
        count(*) FILTER (NOT a.correct AND NOT b.correct) AS both_wrong,
        count(*) FILTER (a.correct AND NOT b.correct) AS only_a,
        count(*) FILTER (NOT a.correct AND b.correct) AS only_b
    FROM answered AS a JOIN answered AS b USING (of_task, doc_id)
    WHERE a.model < b.model
    GROUP BY ALL
)
SELECT
    model_a, model_b, n, both_right, both_wrong, only_a, only_b,
    q_statistic(both_right, both_wrong, only_a, only_b) AS q_statistic,
    correlation(both_right, both_wrong, only_a, only_b) AS correlation,
    (only_a + only_b) / n AS disagreement,
    pairwise_kappa(both_right, both_wrong, only_a, only_b) AS kappa,
    both_wrong / n AS double_fault,
    cohens_kappa(both_right, both_wrong, only_a, only_b) AS cohens_kappa
FROM counted
UNION ALL
SELECT
    error('pairwise_diversity: nobody answered ' || concat(benchmark, '/' || nullif(task, '*'), ', split ' || nullif(split, '*'))),
    NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
WHERE NOT EXISTS (FROM answered)
ORDER BY model_a, model_b;
