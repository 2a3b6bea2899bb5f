-- The runs of temp.gone_runs go, and documents of temp.answered_by_it that nobody answers any more.
-- temp.changed: the tasks of these.
DELETE FROM evaluations WHERE run_id IN (SELECT g.run_id FROM temp.gone_runs AS g);
DELETE FROM decisions WHERE run_id IN (SELECT g.run_id FROM temp.gone_runs AS g);
DELETE FROM run_digests WHERE run_id IN (SELECT g.run_id FROM temp.gone_runs AS g);
DELETE FROM training_history WHERE run_id IN (SELECT g.run_id FROM temp.gone_runs AS g);
CREATE OR REPLACE TEMP TABLE unanswered AS
SELECT a.benchmark, a.task, a.doc_id FROM temp.answered_by_it AS a
ANTI JOIN choice_logprobs AS c USING (benchmark, task, doc_id)
ANTI JOIN answer_passes AS p USING (benchmark, task, doc_id);
DELETE FROM docs WHERE (benchmark, task, doc_id) IN (SELECT u.benchmark, u.task, u.doc_id FROM temp.unanswered AS u);
CREATE OR REPLACE TEMP TABLE changed AS SELECT DISTINCT u.benchmark, u.task FROM temp.unanswered AS u;
DELETE FROM prompts WHERE (benchmark, task, doc_id) IN (SELECT u.benchmark, u.task, u.doc_id FROM temp.unanswered AS u);
DELETE FROM tasks
WHERE (benchmark, task) IN (FROM temp.changed) AND (benchmark, task) NOT IN (SELECT d.benchmark, d.task FROM docs AS d);
DELETE FROM benchmarks
WHERE benchmark IN (SELECT c.benchmark FROM temp.changed AS c) AND benchmark NOT IN (SELECT d.benchmark FROM docs AS d);
