-- Snapshots in which another client than rlfocal wrote or deleted rows.
SELECT s.snapshot_id FROM warehouse.snapshots() AS s
WHERE s.author IS DISTINCT FROM 'rlfocal' AND len(list_filter(
    map_keys(s.changes), lambda kind: contains(kind, 'insert') OR contains(kind, 'delete')
)) > 0
ORDER BY ALL;
