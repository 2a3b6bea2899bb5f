-- The committed partitions, of one model ($1) or all, of one benchmark ($2) or all.
SELECT model, benchmark, task, extraction_id, fingerprint, n_docs, fault, coalesce(n_to_ask, 0),
    versions->>'transformers', settings->>'dtype', backend, settings
FROM extractions
WHERE ($1 IS NULL OR model = $1) AND ($2 IS NULL OR benchmark = $2)
