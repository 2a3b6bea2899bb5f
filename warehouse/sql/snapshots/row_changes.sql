-- Rows that each commit added to a table, deleted from it, or updated in place.
SELECT
    c.snapshot_id,
    count(*) FILTER (c.change_type = 'insert') AS added,
    count(*) FILTER (c.change_type = 'delete') AS removed,
    count(*) FILTER (c.change_type = 'update_postimage') AS updated
FROM warehouse.table_changes($table, $first, $last) AS c
GROUP BY c.snapshot_id;
