-- The commits up to $last, newest first: whether each wrote or deleted answers, wrote any, wrote or deleted records of
-- extractions, or evaluations.
WITH written AS (
    SELECT
        s.snapshot_id,
        unnest(map_entries(s.changes)) AS change
    FROM warehouse.snapshots() AS s
    WHERE s.snapshot_id <= $last
),
named AS (
    SELECT w.snapshot_id, t.table_name, contains(w.change.key, 'insert') AS inserts
    FROM written AS w JOIN ducklake_table_info('warehouse') AS t
        ON list_contains(w.change.value, t.table_id::VARCHAR)
    WHERE regexp_matches(w.change.key, 'insert|delete') AND w.change.key <> 'rewrite_delete'
)
SELECT
    s.snapshot_id,
    coalesce(bool_or(n.table_name IN ('choice_logprobs', 'answer_passes')), false) AS answers,
    coalesce(bool_or(n.inserts AND n.table_name IN ('choice_logprobs', 'answer_passes')), false) AS inserts,
    coalesce(bool_or(n.table_name = 'extractions'), false) AS records,
    coalesce(bool_or(n.table_name = 'evaluations'), false) AS evaluations
FROM warehouse.snapshots() AS s LEFT JOIN named AS n USING (snapshot_id)
WHERE s.snapshot_id <= $last
GROUP BY s.snapshot_id
ORDER BY s.snapshot_id DESC;
