CREATE OR REPLACE TEMP VIEW run_digests AS
FROM warehouse.run_digests SEMI JOIN temp.kept_benchmarks USING (benchmark) SEMI JOIN temp.kept_runs USING (run_id);
