-- Whether each run was right, document by document.
SELECT run_id, dense_rank() OVER (ORDER BY task, doc_id) - 1 AS document, correct::DOUBLE AS hit
FROM decisions WHERE benchmark = ? AND list_contains(?, run_id)
