-- The pools that runs chose, the most frequent first.
SELECT list_sort(pool) AS members, count(*) FROM decisions
WHERE list_contains(?, run_id) AND len(pool) > 0 GROUP BY members ORDER BY 2 DESC, 1
