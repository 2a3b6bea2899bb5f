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
CREATE OR REPLACE MACRO compare_models(benchmark, model_a, model_b, task := '*', split := '*', snapshot := 'now') AS TABLE
WITH paired AS (
    SELECT
        any_value({answered: m.answered, correct: m.correct, wrong: m.wrong}) FILTER (m.model = model_a) AS a,
        any_value({answered: m.answered, correct: m.correct, wrong: m.wrong}) FILTER (m.model = model_b) AS b
    FROM warehouse.model_bits(benchmark, [model_a, model_b], task, split, snapshot) AS m
)
SELECT unnest(warehouse.paired_statistics(
    coalesce(bit_count(p.a.answered & p.b.answered), 0), coalesce(bit_count(p.a.correct & p.b.correct), 0),
    coalesce(bit_count(p.a.correct & p.b.wrong), 0), coalesce(bit_count(p.a.wrong & p.b.correct), 0)
))
FROM paired AS p;

-- The documents that exactly one of two models gets right, of those both answered.
CREATE OR REPLACE MACRO flipped_by_models(benchmark, model_a, model_b, task := '*', split := '*', snapshot := 'now') AS TABLE
SELECT a.task, a.doc_id, any_value(a.model) FILTER (a.correct) AS right_model
FROM warehouse.numbered_answers(benchmark, [model_a, model_b], task, split, snapshot) AS a
GROUP BY a.task, a.doc_id
HAVING count(*) = 2 AND count(*) FILTER (a.correct) = 1
ORDER BY ALL;

-- Two runs' decisions on the documents that both decided: one row each.
CREATE OR REPLACE MACRO paired_decisions(of_run_a, of_run_b, of_task, of_snapshot := 'now') AS TABLE
SELECT a.benchmark, a.task, a.doc_id, a.correct AS correct_a, b.correct AS correct_b
FROM query(warehouse.at_snapshot('decisions', of_snapshot)) AS a
JOIN query(warehouse.at_snapshot('decisions', of_snapshot)) AS b USING (benchmark, task, doc_id)
WHERE a.run_id = of_run_a AND b.run_id = of_run_b AND warehouse.is_named(of_task, a.task)
UNION ALL
SELECT NULL, NULL, NULL, NULL, NULL
FROM (SELECT unnest([of_run_a::VARCHAR, of_run_b::VARCHAR]) AS run) AS r
WHERE CASE
    WHEN coalesce(r.run IN (SELECT d.run_id FROM query(warehouse.at_snapshot('decisions', of_snapshot)) AS d), false) THEN false
    ELSE error(concat('no run ', coalesce(r.run, 'NULL'), ' (`FROM runs`)'))
END;

-- Two runs over the documents both decided.
CREATE OR REPLACE MACRO compare_runs(run_a, run_b, task := '*', snapshot := 'now') AS TABLE
SELECT unnest(warehouse.paired_statistics(
    count(*), count(*) FILTER (p.correct_a AND p.correct_b), count(*) FILTER (p.correct_a AND NOT p.correct_b),
    count(*) FILTER (p.correct_b AND NOT p.correct_a)
))
FROM warehouse.paired_decisions(run_a, run_b, task, snapshot) AS p;

-- The documents that exactly one of two runs gets right, of those both decided.
CREATE OR REPLACE MACRO flipped_by_runs(run_a, run_b, task := '*', snapshot := 'now') AS TABLE
SELECT p.benchmark, p.task, p.doc_id, CASE WHEN p.correct_a THEN run_a ELSE run_b END AS right_run
FROM warehouse.paired_decisions(run_a, run_b, task, snapshot) AS p
WHERE p.correct_a <> p.correct_b
ORDER BY ALL;
