-- Training by phase and episode: the mean over runs, the lowest and the highest; of a run whose agents were trained per task,
-- their mean.
WITH by_run AS (
    SELECT h.phase, h.run_id, h.episode, avg(h.accuracy) AS accuracy, avg(h.mean_pool_size) AS size
    FROM training_history AS h
    WHERE list_contains(?, h.run_id)
    GROUP BY h.phase, h.run_id, h.episode
)
SELECT
    r.phase, r.episode, avg(r.accuracy), min(r.accuracy), max(r.accuracy), avg(r.size), min(r.size), max(r.size)
FROM by_run AS r
WHERE r.accuracy IS NOT NULL
GROUP BY r.phase, r.episode ORDER BY r.episode, r.phase
