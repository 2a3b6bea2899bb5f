-- Training by phase, run and episode; where agents were trained per task, their mean.
SELECT phase, run_id, episode, avg(accuracy), avg(mean_pool_size) FROM training_history
WHERE list_contains(?, run_id)
GROUP BY phase, run_id, episode ORDER BY episode, run_id
