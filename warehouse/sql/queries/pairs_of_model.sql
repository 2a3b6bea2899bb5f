-- A model ($model) and each other one on the documents both answered.
SELECT
    CASE WHEN d.model_a = $model THEN d.model_b ELSE d.model_a END AS other, d.n, d.disagreement, d.q_statistic,
    d.double_fault, p.focal_diversity, a.same_error
FROM pairwise_diversity($benchmark) AS d
JOIN agreement($benchmark) AS a ON a.model_a = d.model_a AND a.model_b = d.model_b
JOIN all_pools($benchmark, 2) AS p ON list_sort(p.models) = list_sort([d.model_a, d.model_b])
WHERE $model IN (d.model_a, d.model_b)
ORDER BY d.disagreement, other;
