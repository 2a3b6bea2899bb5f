-- What goes with a model ($model) in some benchmarks: runs that stand on leaderboards of pools with it (temp.gone_runs),
-- and, where nobody else answered them, documents (temp.answered_by_it).
CREATE OR REPLACE TEMP TABLE gone_runs AS
SELECT DISTINCT e.run_id FROM evaluations AS e
WHERE list_contains($benchmarks, e.benchmark) AND list_contains(e.models, $model) AND e.study IS NULL;
CREATE OR REPLACE TEMP TABLE answered_by_it AS
SELECT DISTINCT o.benchmark, o.task, o.doc_id FROM outcomes AS o
WHERE list_contains($benchmarks, o.benchmark) AND o.model = $model;
