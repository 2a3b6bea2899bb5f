-- How likely runs held their answers to be right, and whether they were.
SELECT d.run_id, d.probability, d.correct FROM decisions AS d
WHERE list_contains(?, d.run_id) AND d.probability IS NOT NULL
ORDER BY d.run_id, d.task, d.doc_id
