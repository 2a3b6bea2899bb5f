-- How every two of some models fail together on test documents: the figures of pairwise_diversity.
SELECT p.model_a, p.model_b, p.correlation, p.double_fault, p.n
FROM pairwise_diversity($1, split := 'test', models := $2) AS p ORDER BY p.model_a, p.model_b
