-- How Parquet files are written: small, and in the order of partitions, so that a query reads few of their row groups.
CALL warehouse.set_option('parquet_compression', 'zstd');
CALL warehouse.set_option('parquet_version', 2);
ALTER TABLE docs SET SORTED BY (benchmark, task, doc_id);
ALTER TABLE prompts SET SORTED BY (benchmark, task, model, doc_id);
ALTER TABLE choice_logprobs SET SORTED BY (benchmark, task, model, doc_id, choice);
ALTER TABLE answer_passes SET SORTED BY (benchmark, task, model, doc_id, pass);
ALTER TABLE traces SET SORTED BY (benchmark, task, model, doc_id, trace);
ALTER TABLE decisions SET SORTED BY (benchmark, run_id, task, doc_id);
