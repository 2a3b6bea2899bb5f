-- temp.renamed_runs: the runs that asked the model $old and whose decisions are as they were stored.
CREATE OR REPLACE TEMP TABLE renamed_runs AS
SELECT run_id FROM run_digests AS g JOIN (
    SELECT d.run_id, decisions_digest(d) AS digest FROM decisions AS d
    GROUP BY d.run_id HAVING bool_or(list_contains(d.pool, $old))
) AS asked USING (run_id, digest);
