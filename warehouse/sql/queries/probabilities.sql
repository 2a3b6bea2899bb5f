-- How likely runs held their answers to be right, NULL without an answer or a probability, and whether they were.
SELECT
    d.run_id, CASE WHEN coalesce(d.answer, d.prediction::VARCHAR) IS NOT NULL THEN d.probability END AS probability, d.correct
FROM decisions AS d
WHERE list_contains(?, d.run_id)
ORDER BY d.run_id, d.task, d.doc_id
