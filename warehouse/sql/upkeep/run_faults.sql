-- Runs whose figures are not those of their decisions, or whose decisions are not those that were stored.
WITH decided AS (
    SELECT
        d.run_id, d.benchmark, coalesce(d.task, '*') AS task, count(*) AS n, avg(d.correct::INT) AS accuracy,
        count(*) - count(d.correct) AS n_ungraded, decisions_digest(d) AS digest
    FROM decisions AS d WHERE d.task IS NOT NULL
    GROUP BY GROUPING SETS ((d.run_id, d.benchmark, d.task), (d.run_id, d.benchmark))
),
digests AS (
    SELECT g.run_id, g.benchmark, '*' AS task, any_value(g.digest) AS digest FROM run_digests AS g GROUP BY ALL
),
compared AS (
    SELECT run_id, task, CASE
        WHEN e.run_id IS NULL THEN format('{} decisions, but no evaluation', coalesce(d.n, 0))
        WHEN d.n IS NULL THEN format('no decisions of its {} documents', e.n)
        WHEN d.n IS DISTINCT FROM e.n
            THEN format('decisions of {} documents, expected {}', d.n, coalesce(e.n::VARCHAR, 'NULL'))
        WHEN d.n_ungraded > 0 THEN format('{} decisions that are neither right nor wrong', d.n_ungraded)
        WHEN NOT coalesce(abs(d.accuracy - e.accuracy) <= 1e-9, false) THEN format(
            'an accuracy of {}, but its decisions have {:.4f}',
            coalesce(format('{:.4f}', e.accuracy), 'NULL'), d.accuracy)
        WHEN task = '*' AND g.digest IS DISTINCT FROM d.digest THEN 'decisions that were altered after they were stored'
    END AS reason
    FROM evaluations AS e
    FULL JOIN decided AS d USING (run_id, benchmark, task)
    FULL JOIN digests AS g USING (run_id, benchmark, task)
)
SELECT c.run_id, c.task, c.reason FROM compared AS c WHERE c.reason IS NOT NULL ORDER BY ALL;
