-- What methods decided on test documents, without what needs the labels: whether a decision is right, and the reward.
-- A column added here becomes a key of every line.
SELECT
    coalesce(d.answer, d.prediction::VARCHAR) AS answer, r.benchmark, o.doc_hash, d.doc_id, r.method, d.pool AS models, r.per, d.probability,
    r.protocol, list_transform(list_sort(d.rounds), lambda r: r.round) AS rounds, r.seed, d.task
FROM decisions AS d
JOIN (SELECT unnest($runs) AS run_id) AS wanted USING (run_id)
JOIN evaluations AS r ON r.run_id = d.run_id AND r.task = '*'
LEFT JOIN docs AS o ON (o.benchmark, o.task, o.doc_id) = (d.benchmark, d.task, d.doc_id)
ORDER BY r.method, r.seed NULLS FIRST, r.per, d.task, d.doc_id;
