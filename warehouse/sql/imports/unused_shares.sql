-- How many train and test documents of a benchmark have each value of a column that is not used, where its values are few.
WITH valued AS (
    SELECT d.benchmark, u.name, u.value, d.split = 'test' AS is_test
    FROM unused AS u JOIN documents AS d USING (row)
),
few AS (
    SELECT v.benchmark, v.name, count(*) FILTER (NOT v.is_test) AS n_train, count(*) FILTER (v.is_test) AS n_test
    FROM valued AS v
    JOIN (SELECT d.benchmark, count(*) AS n FROM documents AS d GROUP BY ALL) AS s USING (benchmark)
    GROUP BY v.benchmark, v.name, s.n
    HAVING count(*) = s.n AND count(DISTINCT v.value) BETWEEN 2 AND least(100, s.n // 5)
)
SELECT
    v.benchmark, 'column ' || v.name, format('{} {}', v.name, left(v.value, 40)), f.n_train,
    count(*) FILTER (NOT v.is_test), f.n_test, count(*) FILTER (v.is_test)
FROM valued AS v JOIN few AS f USING (benchmark, name)
GROUP BY v.benchmark, v.name, v.value, f.n_train, f.n_test
ORDER BY ALL;
