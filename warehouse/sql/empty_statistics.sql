-- Statistics of tables without rows, in DuckLake's own catalogue. DuckLake writes them with a table's first row. Until
-- then it looks for them once for each column of each query (duckdb/ducklake#1313), which takes most of a query's time.
INSERT INTO __ducklake_metadata_warehouse.ducklake_table_column_stats (table_id, column_id, contains_null, contains_nan)
SELECT table_id, column_id, false, CASE WHEN column_type IN ('float32', 'float64') THEN false END
FROM __ducklake_metadata_warehouse.ducklake_column
WHERE end_snapshot IS NULL
  AND column_id NOT IN (
      SELECT parent_column FROM __ducklake_metadata_warehouse.ducklake_column AS child
      WHERE child.table_id = ducklake_column.table_id AND parent_column IS NOT NULL
  )
  AND table_id NOT IN (SELECT table_id FROM __ducklake_metadata_warehouse.ducklake_table_stats);

INSERT INTO __ducklake_metadata_warehouse.ducklake_table_stats (table_id, record_count, next_row_id, file_size_bytes)
SELECT table_id, 0, 0, 0 FROM __ducklake_metadata_warehouse.ducklake_table
WHERE end_snapshot IS NULL
  AND table_id NOT IN (SELECT table_id FROM __ducklake_metadata_warehouse.ducklake_table_stats);
