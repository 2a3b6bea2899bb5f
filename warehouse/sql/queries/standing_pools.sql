-- The widest evaluated pool of each benchmark, of those whose models all have answers if there are any.
WITH present AS (SELECT e.benchmark, list(DISTINCT e.model) AS models FROM extractions AS e GROUP BY e.benchmark)
SELECT c.benchmark, c.models
FROM current_evaluations AS c LEFT JOIN present AS p USING (benchmark)
WHERE c.task = '*' AND c.budget IS NULL
QUALIFY row_number() OVER (
    PARTITION BY c.benchmark
    ORDER BY coalesce(list_has_all(p.models, c.models), false) DESC, len(c.models) DESC, c.created_at DESC, c.run_id
) = 1;
