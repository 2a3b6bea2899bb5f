-- What a model's removal from $benchmarks concerns: runs of pools with it, except those of studies (temp.gone_runs), and
-- the documents that it answered (temp.answered_by_it).
CREATE OR REPLACE TEMP TABLE gone_runs AS
SELECT DISTINCT e.run_id FROM evaluations AS e
WHERE list_contains($benchmarks, e.benchmark) AND list_contains(e.models, $model) AND e.study IS NULL;
CREATE OR REPLACE TEMP TABLE answered_by_it AS
SELECT DISTINCT o.benchmark, o.task, o.doc_id FROM outcomes AS o
WHERE list_contains($benchmarks, o.benchmark) AND o.model = $model;
