-- The task of each document that some run decided, in the order of correct_by_document.
SELECT task FROM decisions WHERE benchmark = ? AND list_contains(?, run_id) GROUP BY task, doc_id ORDER BY task, doc_id
