-- What leaves the warehouse of `traces`, as views.sql has it of the others: a trace repeats the question.
CREATE OR REPLACE TEMP VIEW traces AS
SELECT
    t.* REPLACE (
        CASE WHEN w.task IS NULL THEN t.text END AS text,
        CASE WHEN w.task IS NULL THEN t.token_ids END AS token_ids
    )
FROM warehouse.traces AS t
SEMI JOIN temp.kept_benchmarks USING (benchmark)
SEMI JOIN temp.kept_models USING (model)
LEFT JOIN temp.withheld AS w USING (benchmark, task, doc_id);
