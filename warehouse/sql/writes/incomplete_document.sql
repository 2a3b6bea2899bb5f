-- The first document of temp.given without exactly one row of temp.choices for each of its choices; or, where its task has rows
-- of temp.passes, with fewer of them than others of its task, or one twice.
WITH chosen AS (
    SELECT d.benchmark, d.task, d.doc_id, count(DISTINCT r.choice) AS n, count(r.choice) AS n_rows,
        coalesce(len(any_value(d.choices)), greatest(n_rows, 1)) AS n_expected, max(r.choice) >= n_expected AS is_beyond
    FROM temp.given AS d
    LEFT JOIN temp.choices AS r USING (benchmark, task, doc_id)
    WHERE (d.benchmark, d.task) NOT IN (SELECT DISTINCT p.benchmark, p.task FROM temp.passes AS p)
    GROUP BY ALL
),
sampled AS (
    SELECT d.benchmark, d.task, d.doc_id, count(DISTINCT r.pass) AS n, count(r.pass) AS n_rows
    FROM temp.given AS d
    LEFT JOIN temp.passes AS r USING (benchmark, task, doc_id)
    WHERE (d.benchmark, d.task) IN (SELECT DISTINCT p.benchmark, p.task FROM temp.passes AS p)
    GROUP BY ALL
),
counted AS (
    FROM chosen
    UNION ALL
    SELECT *, greatest(max(n) OVER (PARTITION BY benchmark, task), 1) AS n_expected, false AS is_beyond FROM sampled
)
SELECT benchmark, task, doc_id, n_rows, n_expected
FROM counted
WHERE n <> n_rows OR n_rows <> n_expected OR is_beyond
ORDER BY benchmark, task, doc_id
LIMIT 1;
