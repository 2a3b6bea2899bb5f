-- Schema 11: a decision has a choice's number in `prediction` or the text in `answer`, as the view `predictions`.
CREATE OR REPLACE TEMP TABLE with_choices AS
SELECT b.benchmark FROM (SELECT DISTINCT d.benchmark FROM decisions AS d) AS b WHERE has_choices(b.benchmark);
ALTER TABLE decisions RENAME COLUMN prediction TO answer;
ALTER TABLE decisions ADD COLUMN prediction INT;
UPDATE decisions SET prediction = TRY_CAST(answer AS INT), answer = NULL
WHERE benchmark IN (SELECT w.benchmark FROM temp.with_choices AS w);
