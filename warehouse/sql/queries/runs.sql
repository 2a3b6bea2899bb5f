-- All runs on test rows, and whether each is current.
SELECT e.*, c.run_id IS NOT NULL AS is_current FROM evaluations AS e
LEFT JOIN (SELECT DISTINCT run_id FROM current_evaluations) AS c USING (run_id)
WHERE e.split = 'test' ORDER BY e.run_id, e.task
