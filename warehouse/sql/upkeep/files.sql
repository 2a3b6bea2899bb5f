-- What the catalogue says of files. catalogue_files: those that hold rows (`wide`) and those that say which rows of these are
-- deleted, under the data folder; deletable_files: those that no snapshot needs, `since` when, and that wait for their deletion.
CREATE OR REPLACE TEMP MACRO catalogue_files(data) AS TABLE
WITH files AS (
    SELECT d.table_id, d.data_file_id AS id, true AS wide, d.path, d.path_is_relative, d.record_count AS n_rows,
        d.file_size_bytes, d.begin_snapshot, d.end_snapshot
    FROM __ducklake_metadata_warehouse.ducklake_data_file AS d
    UNION ALL
    SELECT d.table_id, d.data_file_id, false, d.path, d.path_is_relative, d.delete_count,
        d.file_size_bytes, d.begin_snapshot, d.end_snapshot
    FROM __ducklake_metadata_warehouse.ducklake_delete_file AS d
),
tables AS (
    SELECT t.table_id, any_value(t.table_name) AS name, any_value(concat(s.path, t.path)) AS folder
    FROM __ducklake_metadata_warehouse.ducklake_table AS t
    JOIN __ducklake_metadata_warehouse.ducklake_schema AS s USING (schema_id)
    GROUP BY ALL
)
SELECT
    f.id, t.name AS table_name, f.wide,
    CASE WHEN f.path_is_relative::BOOLEAN THEN concat(data, t.folder, f.path) ELSE f.path END AS path,
    f.n_rows, f.file_size_bytes AS size, f.begin_snapshot, f.end_snapshot
FROM files AS f JOIN tables AS t USING (table_id);

CREATE OR REPLACE TEMP MACRO deletable_files(data) AS TABLE
SELECT
    CASE WHEN s.path_is_relative::BOOLEAN THEN concat(data, s.path) ELSE s.path END AS path,
    s.schedule_start::TIMESTAMPTZ AS since
FROM __ducklake_metadata_warehouse.ducklake_files_scheduled_for_deletion AS s;
