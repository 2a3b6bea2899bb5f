-- Parquet files under the folder $data that the catalogue does not name.
-- Object stores spell a path's beginning in more than one way.
SELECT g.file FROM glob($data || '**') AS g
ANTI JOIN (
    SELECT f.path FROM catalogue_files($data) AS f UNION ALL SELECT d.path FROM deletable_files($data) AS d
) AS n ON regexp_replace(n.path, '^[a-z0-9]+:/+|^/', '') = regexp_replace(g.file, '^[a-z0-9]+:/+|^/', '')
WHERE g.file LIKE '%.parquet'
ORDER BY g.file;
