-- The commits up to $last, newest first: whether each wrote answers, records of extractions, or evaluations.
WITH written AS (
    SELECT
        s.snapshot_id,
        unnest(flatten(map_values(map_from_entries(list_filter(
            map_entries(s.changes), lambda change: regexp_matches(change.key, 'insert|delete')
        ))))) AS table_id
    FROM warehouse.snapshots() AS s
    WHERE s.snapshot_id <= $last
),
named AS (
    SELECT w.snapshot_id, t.table_name
    FROM written AS w JOIN ducklake_table_info('warehouse') AS t ON w.table_id = t.table_id::VARCHAR
)
SELECT
    s.snapshot_id,
    coalesce(bool_or(n.table_name IN ('choice_logprobs', 'answer_passes')), false) AS answers,
    coalesce(bool_or(n.table_name = 'extractions'), false) AS records,
    coalesce(bool_or(n.table_name = 'evaluations'), false) AS evaluations
FROM warehouse.snapshots() AS s LEFT JOIN named AS n USING (snapshot_id)
WHERE s.snapshot_id <= $last
GROUP BY s.snapshot_id
ORDER BY s.snapshot_id DESC;
