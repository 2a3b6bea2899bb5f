-- How many train and test documents of a benchmark ($benchmark) have each property: a label or gold answer, a task, a
-- length of the question (by quarters of all), and, of each of $models, a right answer. Test are the documents marked
-- so, or with $run those that it decided; the others are train. With $run and $of_train, only those marked train count.
WITH sides AS (
    SELECT
        d.task, d.doc_id, coalesce('label ' || d.label, 'gold ' || d.gold) AS label, length(d.question) AS length,
        CASE WHEN $run IS NULL THEN d.split = 'test' ELSE r.doc_id IS NOT NULL END AS is_test
    FROM docs AS d
    LEFT JOIN (SELECT r.task, r.doc_id FROM decisions AS r WHERE r.benchmark = $benchmark AND r.run_id = $run) AS r
        ON (r.task, r.doc_id) = (d.task, d.doc_id)
    WHERE d.benchmark = $benchmark AND ($run IS NULL OR NOT $of_train OR d.split = 'train')
),
quarters AS (
    SELECT quantile_disc(s.length, 0.25) AS low, quantile_disc(s.length, 0.5) AS middle, quantile_disc(s.length, 0.75) AS high
    FROM sides AS s
),
properties AS (
    SELECT 'label' AS kind, s.label AS property, s.is_test FROM sides AS s
    UNION ALL
    SELECT 'task', 'task ' || s.task, s.is_test FROM sides AS s
    UNION ALL
    SELECT 'length', CASE WHEN s.length <= q.low THEN 'the shortest quarter of questions' WHEN s.length > q.high
        THEN 'the longest quarter of questions' END, s.is_test
    FROM sides AS s CROSS JOIN quarters AS q
    UNION ALL
    SELECT 'accuracy', o.model || ' is right', s.is_test
    FROM outcomes AS o JOIN sides AS s ON (s.task, s.doc_id) = (o.task, o.doc_id)
    WHERE o.benchmark = $benchmark AND list_contains($models, o.model) AND o.correct
),
sizes AS (
    SELECT count(*) FILTER (s.is_test) AS n_test, count(*) FILTER (NOT s.is_test) AS n_train FROM sides AS s
),
counted AS (
    SELECT
        p.kind, p.property, count(*) FILTER (NOT p.is_test) AS k_train, count(*) FILTER (p.is_test) AS k_test,
        count(*) OVER (PARTITION BY p.kind) AS n_values
    FROM properties AS p WHERE p.property IS NOT NULL GROUP BY p.kind, p.property
)
SELECT c.kind, c.property, z.n_train, c.k_train, z.n_test, c.k_test
FROM counted AS c CROSS JOIN sizes AS z
WHERE c.kind <> 'label' OR c.n_values <= 20 -- golds of free answers are many
ORDER BY ALL;
