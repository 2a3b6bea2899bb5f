-- What a policy can reach that returns a member's answer: beta is the share of documents on which no model is right.
-- models: '*' or NULL are those that answered every document asked about, as in `evaluate` (left_out: the others, NULL if
-- there are none); of named ones, documents that all answered count. best_single: chosen on train where there is any.
-- lead_by_*: the part of the oracle's lead over it in documents that one, two or more models get right. unnamed_right: how
-- often, where no model is right, the choice that none named with the highest mean probability is (ties: the lowest);
-- unnamed_guessing: how often guessing among those is.
CREATE OR REPLACE MACRO ceiling(benchmark, models := '*', task := '*', split := '*', snapshot := 'now') AS TABLE
WITH answers AS (
    FROM warehouse.numbered_answers(
        benchmark, CASE WHEN models IS NULL THEN ['*'] ELSE warehouse.name_list(models) END, task, split, snapshot
    )
),
answering AS (
    SELECT
        a.model,
        count(*) = any_value(a.n_documents) OR (models IS NOT NULL AND NOT list_contains(warehouse.name_list(models), '*')) AS is_in
    FROM answers AS a GROUP BY a.model
),
pool AS (SELECT n.model FROM answering AS n WHERE n.is_in),
documents AS (
    SELECT
        a.task, a.doc_id, coalesce(list(a.model) FILTER (a.correct), []) AS right_models,
        list_distinct(list(a.prediction)) AS named
    FROM answers AS a JOIN pool AS p USING (model)
    GROUP BY a.task, a.doc_id
    HAVING count(*) = greatest((SELECT count(*) FROM pool), len(list_distinct(warehouse.name_list(models))))
),
trained AS (
    SELECT t.model, count_if(t.correct) AS n_right
    FROM warehouse.numbered_answers(benchmark, '*', task, 'train', snapshot) AS t
    GROUP BY t.model
),
alone AS (
    SELECT p.model, count_if(list_contains(d.right_models, p.model)) AS n_right FROM pool AS p, documents AS d GROUP BY p.model
),
best AS (
    SELECT arg_min(a.model, {right_first: -coalesce(t.n_right, a.n_right), name: a.model}) AS model
    FROM alone AS a LEFT JOIN trained AS t USING (model)
),
pooled AS (
    SELECT c.task, c.doc_id, c.choice, round(ln(greatest(avg(c.prob), 1e-300)), 9) AS logprob
    FROM query(warehouse.at_snapshot('choice_probs', snapshot)) AS c JOIN pool AS p USING (model)
    WHERE c.benchmark = benchmark
    GROUP BY ALL
),
judged AS (
    SELECT
        any_value(len(d.right_models)) AS n_right, any_value(list_contains(d.right_models, b.model)) AS best_right,
        count(c.choice) AS n_choices, count(c.choice) FILTER (NOT list_contains(d.named, c.choice)) AS n_unnamed,
        arg_max(c.choice, {logprob: c.logprob, first: -c.choice}) FILTER (NOT list_contains(d.named, c.choice)) = any_value(l.label)
            AS unnamed_right
    FROM documents AS d JOIN query(warehouse.at_snapshot('docs', snapshot)) AS l USING (task, doc_id) CROSS JOIN best AS b
    LEFT JOIN pooled AS c USING (task, doc_id)
    WHERE l.benchmark = benchmark
    GROUP BY d.task, d.doc_id
),
counted AS (
    SELECT
        count(*) AS n, count(*) FILTER (j.n_right = 0) AS n_none_right, avg(j.best_right::INT) AS best_single,
        (SELECT b.model FROM best AS b) AS best_model,
        (SELECT list(n.model ORDER BY n.model) FILTER (NOT n.is_in) FROM answering AS n) AS left_out,
        avg((j.n_right = 1 AND NOT j.best_right)::INT) AS lead_by_one,
        avg((j.n_right = 2 AND NOT j.best_right)::INT) AS lead_by_two, avg((j.n_right > 2 AND NOT j.best_right)::INT) AS lead_by_more,
        avg(1 / nullif(j.n_choices, 0)) AS guessing, avg(j.unnamed_right::INT) FILTER (j.n_right = 0) AS unnamed_right,
        avg(1 / nullif(j.n_unnamed, 0)) FILTER (j.n_right = 0) AS unnamed_guessing
    FROM judged AS j
)
SELECT
    c.n, c.n_none_right, c.n_none_right / nullif(c.n, 0) AS beta, i.of_beta.low AS beta_low, i.of_beta.high AS beta_high,
    (c.n - c.n_none_right) / nullif(c.n, 0) AS oracle, c.* EXCLUDE (n, n_none_right)
FROM counted AS c, (SELECT warehouse.clopper_pearson(c.n_none_right, c.n) AS of_beta FROM counted AS c) AS i;

-- How often runs answered what no model that they asked answers, and how often that is right: one row a run. An answer
-- without asking anyone, and no answer, are not counted as such.
CREATE OR REPLACE MACRO unnamed_answers(runs, snapshot := 'now') AS TABLE
WITH named AS (
    SELECT p.benchmark, p.task, p.doc_id, coalesce(p.prediction::VARCHAR, p.answer) AS said, list(p.model) AS models
    FROM query(warehouse.at_snapshot('outcomes', snapshot)) AS p
    GROUP BY ALL
),
decided AS (
    SELECT
        d.run_id, d.correct, len(d.pool) > 0 AND coalesce(d.prediction::VARCHAR, d.answer) IS NOT NULL
            AND NOT coalesce(list_has_any(d.pool, n.models), false) AS own
    FROM query(warehouse.at_snapshot('decisions', snapshot)) AS d
    LEFT JOIN named AS n ON (n.benchmark, n.task, n.doc_id, n.said)
        = (d.benchmark, d.task, d.doc_id, coalesce(d.prediction::VARCHAR, d.answer))
    WHERE warehouse.is_named(runs, d.run_id)
)
SELECT d.run_id, count(*) AS n, count(*) FILTER (d.own) AS n_unnamed, count(*) FILTER (d.own AND d.correct) AS n_unnamed_right
FROM decided AS d
GROUP BY d.run_id
UNION ALL
SELECT NULL, NULL, NULL, NULL
FROM (SELECT unnest(warehouse.name_list(runs)) AS run) AS asked_run
WHERE CASE
    WHEN coalesce(asked_run.run IN (
        SELECT '*' UNION ALL SELECT known_run.run_id FROM query(warehouse.at_snapshot('decisions', snapshot)) AS known_run
    ), false) THEN false
    ELSE error(concat('no run ', coalesce(asked_run.run, 'NULL'), ' (`FROM runs`)'))
END
ORDER BY run_id;
