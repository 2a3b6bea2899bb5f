-- Partitions by their records: one whose record was deleted and added in the same commit was replaced.
WITH records AS (
    SELECT
        c.snapshot_id, c.model, c.benchmark, c.task,
        bool_or(c.change_type IN ('insert', 'update_postimage')) AS came,
        bool_or(c.change_type IN ('delete', 'update_preimage')) AS went
    FROM warehouse.table_changes('extractions', $first, $last) AS c
    GROUP BY ALL
)
SELECT
    r.snapshot_id,
    CASE WHEN r.came AND r.went THEN 'replaced' WHEN r.came THEN 'added' ELSE 'removed' END AS change,
    r.model, r.benchmark, r.task
FROM records AS r
ORDER BY ALL;
