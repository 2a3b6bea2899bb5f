-- What evaluations say now. Of runs on one pool (the models to choose from), protocol, `per` and split, those count that
-- read the same data as the newest of them, so that rows compare; and of runs of one method and seed there, the newest, tuned
-- by so many trials or not tuned. Runs of studies stay out.
CREATE OR REPLACE VIEW current_evaluations AS
WITH runs AS (
    SELECT
        e.run_id, e.benchmark, e.models, e.protocol, e.per, e.split, e.method, e.seed, e.budget, e.data, e.created_at,
        e.settings->>'$.tuned' AS tuned,
        first_value(e.data) OVER (
            PARTITION BY e.benchmark, e.models, e.protocol, e.per, e.split ORDER BY e.created_at DESC, e.run_id
        ) AS newest_data
    FROM evaluations AS e
    WHERE e.task = '*' AND e.study IS NULL
),
newest AS (
    SELECT r.run_id
    FROM runs AS r
    WHERE r.data = r.newest_data
    QUALIFY row_number() OVER (
        PARTITION BY r.benchmark, r.models, r.protocol, r.per, r.split, r.method, r.seed, r.budget, r.tuned
        ORDER BY r.created_at DESC, r.run_id
    ) = 1
)
SELECT e.* FROM evaluations AS e SEMI JOIN newest AS n ON n.run_id = e.run_id;
