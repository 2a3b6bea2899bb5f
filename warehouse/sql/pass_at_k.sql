-- How likely at least one of k passes is right, by the unbiased estimator of Chen et al. (2021), averaged over documents
-- with at least k passes: n of them.
CREATE OR REPLACE MACRO pass_at_k(benchmark, k, task := '*', split := '*', models := '*', snapshot := 'now') AS TABLE
WITH counted AS (
    SELECT p.model, p.task, p.doc_id, count(*) AS passes, count_if(p.answer = d.gold)::BIGINT AS n_right
    FROM query(warehouse.at_snapshot('answer_passes', snapshot)) AS p
    JOIN query(warehouse.at_snapshot('docs', snapshot)) AS d
        ON d.benchmark = p.benchmark AND d.task = p.task AND d.doc_id = p.doc_id
    WHERE p.benchmark = benchmark AND split IN ('*', d.split) AND warehouse.is_named(models, p.model)
        AND warehouse.is_named(task, p.task)
    GROUP BY ALL
)
SELECT
    c.model, count(*) AS n,
    avg(1 - coalesce(list_product(list_transform(
        range(c.passes - c.n_right + 1, c.passes + 1), lambda i: greatest(1 - k / i, 0)
    )), 1)) AS pass_at_k
FROM counted AS c
WHERE c.passes >= k
GROUP BY c.model
UNION ALL
SELECT error('pass_at_k: k must be at least 1'), NULL, NULL WHERE coalesce(k, 0) < 1
UNION ALL
SELECT NULL, NULL, NULL
FROM warehouse.refusals(benchmark, models, task, split, snapshot) AS r
WHERE CASE WHEN r.refusal IS NOT NULL THEN error(r.refusal) ELSE false END
ORDER BY model;
