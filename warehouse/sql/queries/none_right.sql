-- On how many of the documents that a run decided none of these models is right.
SELECT count(*) FROM (
    SELECT o.task, o.doc_id FROM decisions d
    JOIN outcomes o ON o.benchmark = d.benchmark AND o.task = d.task AND o.doc_id = d.doc_id
    WHERE d.run_id = ? AND o.benchmark = ? AND list_contains(?, o.model)
    GROUP BY o.task, o.doc_id HAVING NOT bool_or(o.correct)
)
