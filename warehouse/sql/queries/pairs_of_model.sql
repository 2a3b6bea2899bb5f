-- The focal diversity of a model with each other one.
SELECT list_filter(models, lambda m: m <> ?)[1], focal_diversity FROM all_pools(?, 2)
WHERE list_contains(models, ?) ORDER BY 1
