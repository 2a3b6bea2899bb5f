-- Documents whose texts are not exported: those marked confidential, those of the benchmarks that the variable `confidential`
-- names, and their variants (gpqa@chat).
CREATE TEMP TABLE withheld AS
SELECT d.benchmark, d.task, d.doc_id
FROM warehouse.docs AS d
WHERE NOT getvariable('with_questions')
    AND (d.confidential OR list_contains(getvariable('confidential'), split_part(d.benchmark, '@', 1)));
