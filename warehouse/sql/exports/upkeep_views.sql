-- What `rlfocal import tables` needs beside the answers: tables that snapshots from before schema 7 may lack.
CREATE OR REPLACE TEMP VIEW doc_digests AS
FROM warehouse.doc_digests SEMI JOIN temp.kept_benchmarks USING (benchmark);

CREATE OR REPLACE TEMP VIEW corrections AS
SELECT
    c.* REPLACE (
        CASE WHEN w.task IS NULL THEN c.gold END AS gold,
        CASE WHEN w.task IS NULL THEN c.gold_before END AS gold_before
    )
FROM warehouse.corrections AS c
SEMI JOIN temp.kept_benchmarks USING (benchmark)
LEFT JOIN temp.withheld AS w USING (benchmark, task, doc_id);

CREATE OR REPLACE TEMP VIEW renames AS FROM warehouse.renames WHERE getvariable('whole_pool');

CREATE OR REPLACE TEMP VIEW ruled_out AS
FROM warehouse.ruled_out SEMI JOIN temp.kept_benchmarks USING (benchmark) WHERE getvariable('whole_pool');
