-- Files that none of the snapshots $staying sees, and their bytes.
WITH files AS (
    SELECT d.begin_snapshot, d.end_snapshot, d.file_size_bytes
    FROM __ducklake_metadata_warehouse.ducklake_data_file AS d
    UNION ALL
    SELECT d.begin_snapshot, d.end_snapshot, d.file_size_bytes
    FROM __ducklake_metadata_warehouse.ducklake_delete_file AS d
),
staying AS (SELECT unnest($staying::BIGINT[]) AS snapshot)
SELECT count(*), coalesce(sum(f.file_size_bytes), 0)::BIGINT
FROM files AS f
WHERE f.end_snapshot IS NOT NULL AND NOT EXISTS (
    FROM staying AS s WHERE s.snapshot >= f.begin_snapshot AND s.snapshot < f.end_snapshot
);
