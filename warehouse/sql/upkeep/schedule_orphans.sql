-- Has DuckLake delete the files $paths at once, whatever store they are in; no data file has so high a number.
INSERT INTO __ducklake_metadata_warehouse.ducklake_files_scheduled_for_deletion
    (data_file_id, path, path_is_relative, schedule_start)
SELECT 4611686018427387904 + row_number() OVER (ORDER BY path), path, false, TIMESTAMPTZ '1970-01-01 00:00:00+00' FROM (SELECT unnest($paths::VARCHAR[]) AS path);
