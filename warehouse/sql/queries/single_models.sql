-- The accuracy by task of models on the documents that a run decided.
SELECT o.model, o.task, count(*), avg(o.correct::DOUBLE), any_value(m.price) FROM decisions d
JOIN outcomes o ON o.benchmark = d.benchmark AND o.task = d.task AND o.doc_id = d.doc_id
LEFT JOIN models m ON m.model = o.model
WHERE d.run_id = ? AND o.benchmark = ? AND list_contains(?, o.model)
GROUP BY o.model, o.task ORDER BY o.model, o.task
