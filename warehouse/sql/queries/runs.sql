-- All runs of methods as they are, without a budget, and whether each is current.
SELECT e.*, c.run_id IS NOT NULL AS is_current FROM evaluations AS e
LEFT JOIN (SELECT DISTINCT run_id FROM current_evaluations) AS c USING (run_id)
WHERE e.budget IS NULL ORDER BY e.run_id, e.task
