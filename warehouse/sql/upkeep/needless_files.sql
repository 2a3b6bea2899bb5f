-- Files that none of the snapshots $staying sees, and their bytes.
SELECT count(*), coalesce(sum(f.size), 0)::BIGINT
FROM catalogue_files('') AS f
WHERE f.end_snapshot IS NOT NULL AND NOT EXISTS (
    FROM (SELECT unnest($staying::BIGINT[]) AS snapshot) AS s
    WHERE s.snapshot >= f.begin_snapshot AND s.snapshot < f.end_snapshot
);
