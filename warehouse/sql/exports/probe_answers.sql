-- What models said may repeat the question, so nothing of a withheld document leaves.
CREATE OR REPLACE TEMP VIEW probe_answers AS
SELECT p.* REPLACE (p.settings::VARCHAR AS settings, p.versions::VARCHAR AS versions)
FROM warehouse.probe_answers AS p
SEMI JOIN temp.kept_benchmarks USING (benchmark)
ANTI JOIN temp.withheld USING (benchmark, task, doc_id)
WHERE getvariable('whole_pool') OR p.model IN (SELECT k.model FROM temp.kept_models AS k);
