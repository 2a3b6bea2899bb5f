-- A new snapshot, as DuckLake's specification makes one, from which on the data files $ids are not seen.
INSERT INTO __ducklake_metadata_warehouse.ducklake_snapshot
    (snapshot_id, snapshot_time, schema_version, next_catalog_id, next_file_id)
SELECT s.snapshot_id + 1, now()::VARCHAR, s.schema_version, s.next_catalog_id, s.next_file_id
FROM __ducklake_metadata_warehouse.ducklake_snapshot AS s
WHERE s.snapshot_id = $newest;

INSERT INTO __ducklake_metadata_warehouse.ducklake_snapshot_changes
    (snapshot_id, changes_made, author, commit_message)
SELECT $newest + 1, string_agg(DISTINCT concat('deleted_from_table:', d.table_id), ','), 'rlfocal', $message
FROM __ducklake_metadata_warehouse.ducklake_data_file AS d
WHERE list_contains($ids::BIGINT[], d.data_file_id);

UPDATE __ducklake_metadata_warehouse.ducklake_data_file SET end_snapshot = $newest + 1
WHERE list_contains($ids::BIGINT[], data_file_id) AND end_snapshot IS NULL;

UPDATE __ducklake_metadata_warehouse.ducklake_delete_file SET end_snapshot = $newest + 1
WHERE list_contains($ids::BIGINT[], data_file_id) AND end_snapshot IS NULL;
