-- The rank of a model ($model) on a benchmark among some ($models).
WITH ranked AS (
    SELECT *, rank() OVER (ORDER BY accuracy DESC) AS place, count(*) OVER () AS n_models FROM benchmark_accuracy
    WHERE benchmark = $benchmark AND list_contains($models, model)
)
SELECT n, accuracy, stderr, place, n_models FROM ranked WHERE model = $model;
