-- Files that no snapshot needs and that wait for their deletion.
SELECT CASE WHEN s.path_is_relative::BOOLEAN THEN concat($data, s.path) ELSE s.path END AS path
FROM __ducklake_metadata_warehouse.ducklake_files_scheduled_for_deletion AS s
ORDER BY path;
