-- Which other model makes up best for one model's failures, over the documents both answered, best first.
-- rescued: of the documents that the model gets wrong, the share that the partner gets right.
CREATE OR REPLACE MACRO best_partner(benchmark, model, task := '*', split := '*', models := '*', snapshot := 'now') AS TABLE
WITH words AS (
    SELECT m.model AS name, m.block, m.answered, m.correct, m.wrong
    FROM warehouse.model_words(
        benchmark, CASE WHEN len(warehouse.name_list(models)) > 0 THEN list_append(warehouse.name_list(models), model) ELSE [] END,
        task, split, snapshot
    ) AS m
),
counted AS (
    SELECT
        p.name AS partner, sum(warehouse.n_common(p.answered, i.answered))::BIGINT AS n,
        sum(warehouse.n_common(p.correct, i.answered))::BIGINT AS n_right,
        sum(warehouse.n_common(p.correct, i.wrong))::BIGINT AS n_rescued, sum(warehouse.n_common(p.wrong, i.wrong))::BIGINT AS both_wrong
    FROM words AS i JOIN words AS p ON p.block = i.block AND p.name <> i.name
    WHERE i.name = model
    GROUP BY p.name
)
SELECT
    c.partner, c.n, c.n_right / c.n AS accuracy, c.n_rescued / nullif(c.n_rescued + c.both_wrong, 0) AS rescued,
    (c.n - c.both_wrong) / c.n AS either_right, c.both_wrong / c.n AS double_fault
FROM counted AS c
WHERE c.n > 0
UNION ALL
SELECT NULL, NULL, NULL, NULL, NULL, NULL
FROM warehouse.refusals(benchmark, warehouse.each_named(model), task, split, snapshot) AS r
WHERE CASE WHEN r.refusal IS NOT NULL THEN error(r.refusal) ELSE false END
ORDER BY rescued DESC, partner;
