-- One row a run: its figures on all documents, beside those of its tasks. stale: labels of the benchmark were corrected after
-- the run had read them, and are not what it read; runs of earlier versions do not say what they read.
CREATE OR REPLACE VIEW runs AS
WITH by_task AS (
    SELECT e.run_id, count(*) AS n_tasks, avg(e.accuracy) AS mean_over_tasks
    FROM evaluations AS e
    WHERE e.task <> '*'
    GROUP BY e.run_id
),
corrected AS (
    SELECT c.benchmark, max(c.corrected_at) AS corrected_at FROM corrections AS c GROUP BY c.benchmark
),
described AS (
    SELECT d.benchmark, md5(string_agg(d.digest, ',' ORDER BY d.task)) AS docs_digest FROM doc_digests AS d GROUP BY d.benchmark
)
SELECT
    e.* EXCLUDE (task), t.n_tasks, t.mean_over_tasks,
    c.corrected_at IS NOT NULL AND coalesce(coalesce(e.read_at, e.created_at) < c.corrected_at, true)
        AND e.docs_digest IS DISTINCT FROM s.docs_digest AS stale
FROM evaluations AS e LEFT JOIN by_task AS t USING (run_id) LEFT JOIN corrected AS c USING (benchmark)
LEFT JOIN described AS s USING (benchmark)
WHERE e.task = '*';

-- What runs decided, with the ids that documents came with.
CREATE OR REPLACE VIEW decided AS
SELECT r.method, r.seed, o.source_id, d.*
FROM decisions AS d JOIN runs AS r USING (run_id) LEFT JOIN docs AS o ON (o.benchmark, o.task, o.doc_id) = (d.benchmark, d.task, d.doc_id);

-- What evaluations say now. Of runs on one pool (the models to choose from), protocol, `per` and split, those count that
-- read the same data as the newest of them, so that rows compare; and of runs of one method and seed there, the newest, tuned
-- by so many trials or not tuned. Runs of studies stay out.
CREATE OR REPLACE VIEW current_evaluations AS
WITH standing AS (
    SELECT
        r.run_id, r.benchmark, r.models, r.protocol, r.per, r.split, r.method, r.seed, r.budget, r.data, r.created_at,
        r.stale, r.settings->>'$.tuned' AS tuned,
        first_value(r.data) OVER (
            PARTITION BY r.benchmark, r.models, r.protocol, r.per, r.split ORDER BY r.created_at DESC, r.run_id
        ) AS newest_data
    FROM runs AS r
    WHERE r.study IS NULL
),
newest AS (
    SELECT r.run_id, r.stale
    FROM standing AS r
    WHERE r.data = r.newest_data
    QUALIFY row_number() OVER (
        PARTITION BY r.benchmark, r.models, r.protocol, r.per, r.split, r.method, r.seed, r.budget, r.tuned
        ORDER BY r.created_at DESC, r.run_id
    ) = 1
)
SELECT e.*, n.stale FROM evaluations AS e JOIN newest AS n USING (run_id);
