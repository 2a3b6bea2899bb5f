-- How a model stands on each benchmark.
WITH ranked AS (SELECT *, rank() OVER (PARTITION BY benchmark ORDER BY accuracy DESC) AS place,
count(*) OVER (PARTITION BY benchmark) AS n_models FROM benchmark_accuracy)
SELECT benchmark, n, accuracy, stderr, place, n_models FROM ranked WHERE model = ? ORDER BY 1
