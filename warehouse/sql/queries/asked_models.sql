-- The models that some runs asked, and the share of their documents on which each was asked, by falling share.
WITH decided AS (SELECT pool FROM decisions WHERE benchmark = $benchmark AND list_contains($runs, run_id))
SELECT model, count(*) / (SELECT count(*) FROM decided) AS share
FROM (SELECT unnest(pool) AS model FROM decided) GROUP BY model ORDER BY share DESC, model
