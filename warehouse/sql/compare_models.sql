-- A paired comparison from counts, as a struct: who is better, and McNemar's exact p (two-sided). stderr: of the difference,
-- over documents.
CREATE OR REPLACE MACRO paired_statistics(n, both_right, only_a, only_b) AS {
    n: n,
    accuracy_a: (both_right + only_a) / nullif(n, 0),
    accuracy_b: (both_right + only_b) / nullif(n, 0),
    difference: (only_a - only_b) / nullif(n, 0),
    stderr: sqrt((only_a + only_b - (only_a - only_b)::DOUBLE ** 2 / nullif(n, 0)) / nullif(n - 1, 0) / nullif(n, 0)),
    only_a: only_a,
    only_b: only_b,
    mcnemar_p: CASE WHEN n > 0 THEN warehouse.mcnemar_p(only_a, only_b) END
};

-- Two models over the documents both answered.
CREATE OR REPLACE MACRO compare_models(benchmark, a, b, task := '*', split := '*', snapshot := 'now') AS TABLE
WITH words AS (
    SELECT m.model, m.block, m.answered, m.correct, m.wrong
    FROM warehouse.model_words(benchmark, warehouse.each_named([a, b]), task, split, snapshot) AS m
),
-- Not filtered by name: DuckDB would filter the refusal of a name first.
paired AS (
    SELECT
        warehouse.n_common(of_a.answered, of_b.answered) AS n, warehouse.n_common(of_a.correct, of_b.correct) AS both_right,
        warehouse.n_common(of_a.correct, of_b.wrong) AS only_a, warehouse.n_common(of_a.wrong, of_b.correct) AS only_b,
        coalesce(of_a.model = a AND of_b.model = b, false) AS is_asked
    FROM words AS of_a JOIN words AS of_b ON of_a.block = of_b.block
)
SELECT unnest(warehouse.paired_statistics(
    coalesce(sum(p.n) FILTER (p.is_asked), 0)::BIGINT, coalesce(sum(p.both_right) FILTER (p.is_asked), 0)::BIGINT,
    coalesce(sum(p.only_a) FILTER (p.is_asked), 0)::BIGINT, coalesce(sum(p.only_b) FILTER (p.is_asked), 0)::BIGINT
))
FROM paired AS p;

-- The documents that exactly one of two models gets right, of those both answered.
CREATE OR REPLACE MACRO flipped_by_models(benchmark, a, b, task := '*', split := '*', snapshot := 'now') AS TABLE
SELECT m.task, m.doc_id, any_value(m.model) FILTER (m.correct) AS right_model
FROM warehouse.numbered_answers(benchmark, warehouse.each_named([a, b]), task, split, snapshot) AS m
GROUP BY m.task, m.doc_id
HAVING count(*) = 2 AND count(*) FILTER (m.correct) = 1
ORDER BY ALL;

-- Two runs' decisions on the documents that both decided: one row each. In a lateral call, run ids are columns: an alias of
-- theirs that is one of these would be taken for it, so these are long.
CREATE OR REPLACE MACRO paired_decisions(of_run_a, of_run_b, of_task, of_snapshot := 'now') AS TABLE
SELECT first_run.benchmark, first_run.task, first_run.doc_id, first_run.correct AS correct_a, second_run.correct AS correct_b
FROM query(warehouse.at_snapshot('decisions', of_snapshot)) AS first_run
JOIN query(warehouse.at_snapshot('decisions', of_snapshot)) AS second_run USING (benchmark, task, doc_id)
WHERE first_run.run_id = of_run_a AND second_run.run_id = of_run_b AND warehouse.is_named(of_task, first_run.task)
UNION ALL
SELECT NULL, NULL, NULL, NULL, NULL
FROM (SELECT unnest([of_run_a::VARCHAR, of_run_b::VARCHAR]) AS run) AS asked_run
WHERE CASE
    WHEN coalesce(asked_run.run IN (
        SELECT known_run.run_id FROM query(warehouse.at_snapshot('decisions', of_snapshot)) AS known_run
    ), false) THEN false
    ELSE error(concat('no run ', coalesce(asked_run.run, 'NULL'), ' (`FROM runs`)'))
END;

-- Two runs over the documents both decided.
CREATE OR REPLACE MACRO compare_runs(run_a, run_b, task := '*', snapshot := 'now') AS TABLE
SELECT unnest(warehouse.paired_statistics(
    count(*), count(*) FILTER (both_runs.correct_a AND both_runs.correct_b),
    count(*) FILTER (both_runs.correct_a AND NOT both_runs.correct_b),
    count(*) FILTER (both_runs.correct_b AND NOT both_runs.correct_a)
))
FROM warehouse.paired_decisions(run_a, run_b, task, snapshot) AS both_runs;

-- The documents that exactly one of two runs gets right, of those both decided.
CREATE OR REPLACE MACRO flipped_by_runs(run_a, run_b, task := '*', snapshot := 'now') AS TABLE
SELECT
    both_runs.benchmark, both_runs.task, both_runs.doc_id, CASE WHEN both_runs.correct_a THEN run_a ELSE run_b END AS right_run
FROM warehouse.paired_decisions(run_a, run_b, task, snapshot) AS both_runs
WHERE both_runs.correct_a <> both_runs.correct_b
ORDER BY ALL;
