-- Parquet files under the folder $data that the catalogue does not name.
WITH tables AS (
    SELECT t.table_id, any_value(concat(s.path, t.path)) AS folder
    FROM __ducklake_metadata_warehouse.ducklake_table AS t
    JOIN __ducklake_metadata_warehouse.ducklake_schema AS s USING (schema_id)
    GROUP BY ALL
),
files AS (
    SELECT d.table_id, d.path, d.path_is_relative::BOOLEAN AS is_relative
    FROM __ducklake_metadata_warehouse.ducklake_data_file AS d
    UNION ALL
    SELECT d.table_id, d.path, d.path_is_relative::BOOLEAN
    FROM __ducklake_metadata_warehouse.ducklake_delete_file AS d
),
named AS (
    SELECT CASE WHEN f.is_relative THEN concat($data, t.folder, f.path) ELSE f.path END AS path
    FROM files AS f JOIN tables AS t USING (table_id)
    UNION ALL
    SELECT CASE WHEN s.path_is_relative::BOOLEAN THEN concat($data, s.path) ELSE s.path END
    FROM __ducklake_metadata_warehouse.ducklake_files_scheduled_for_deletion AS s
)
-- Object stores spell a path's beginning in more than one way.
SELECT g.file FROM glob($data || '**') AS g
ANTI JOIN named AS n ON regexp_replace(n.path, '^[a-z0-9]+:/+|^/', '') = regexp_replace(g.file, '^[a-z0-9]+:/+|^/', '')
WHERE g.file LIKE '%.parquet'
ORDER BY g.file;
