-- Snapshots in which another client than rlfocal wrote or deleted rows. A rewrite, as of a compaction, changes none.
SELECT s.snapshot_id FROM warehouse.snapshots() AS s
WHERE s.author IS DISTINCT FROM 'rlfocal' AND len(list_filter(
    map_keys(s.changes), lambda kind: regexp_matches(kind, 'insert|delete') AND kind <> 'rewrite_delete'
)) > 0
ORDER BY ALL;
