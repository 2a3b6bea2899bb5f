-- All runs of methods as they are, without a budget, whether each is current, and whether it is stale.
SELECT e.*, c.run_id IS NOT NULL AS is_current, r.stale FROM evaluations AS e JOIN runs AS r USING (run_id)
LEFT JOIN (SELECT DISTINCT run_id FROM current_evaluations) AS c USING (run_id)
WHERE e.budget IS NULL ORDER BY e.run_id, e.task
