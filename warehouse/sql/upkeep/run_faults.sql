-- Runs whose figures are not those of their decisions.
WITH decided AS (
    SELECT d.run_id, coalesce(d.task, '*') AS task, count(*) AS n, avg(d.correct::INT) AS accuracy
    FROM decisions AS d WHERE d.task IS NOT NULL
    GROUP BY GROUPING SETS ((d.run_id, d.task), (d.run_id))
),
compared AS (
    SELECT run_id, task, CASE
        WHEN e.run_id IS NULL THEN format('{} decisions, but no evaluation', d.n)
        WHEN d.n IS NULL THEN format('no decisions of its {} documents', e.n)
        WHEN d.n <> e.n THEN format('decisions of {} documents, expected {}', d.n, e.n)
        WHEN abs(d.accuracy - e.accuracy) > 1e-9 THEN format(
            'an accuracy of {:.4f}, but its decisions have {:.4f}', e.accuracy, d.accuracy)
    END AS reason
    FROM evaluations AS e FULL JOIN decided AS d USING (run_id, task)
    WHERE e.run_id IS NULL OR e.n IS NOT NULL
)
SELECT c.run_id, c.task, c.reason FROM compared AS c WHERE c.reason IS NOT NULL ORDER BY ALL;
