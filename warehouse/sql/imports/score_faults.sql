-- The first fault in a table of scores: (row, fault). A document of which a model has no score counts at its own first
-- row.
WITH
  documents AS (SELECT task, doc_id, min(row) AS row, any_value(split) AS split FROM scores GROUP BY ALL),
  faults AS (
    SELECT 1 AS kind, row, 'there is no ' || CASE WHEN task IS NULL THEN 'task' WHEN doc_id IS NULL THEN 'doc_id'
      WHEN model IS NULL THEN 'model' ELSE 'score' END AS fault
    FROM scores WHERE task IS NULL OR doc_id IS NULL OR model IS NULL OR score IS NULL
    UNION ALL
    SELECT 2, row, format('score {} of ''{}'' is not finite', score, model) FROM scores WHERE NOT isfinite(score)
    UNION ALL
    SELECT 3, row, format('split ''{}'' is neither ''train'' nor ''test''', split)
    FROM scores WHERE split NOT IN ('train', 'test')
    UNION ALL
    SELECT 4, row, format('a second score of ''{}'' for document {} of task ''{}''', model, doc_id, task)
    FROM scores QUALIFY row_number() OVER (PARTITION BY task, doc_id, model ORDER BY row) > 1
    UNION ALL
    SELECT 5, row, format('document {} of task ''{}'' has another split than before', doc_id, task)
    FROM scores QUALIFY split IS DISTINCT FROM first(split) OVER (PARTITION BY task, doc_id ORDER BY row)
    UNION ALL
    SELECT 6, row, format('document {} of task ''{}'' has no score of ''{}''', doc_id, task, model)
    FROM documents CROSS JOIN (SELECT DISTINCT model FROM scores)
    ANTI JOIN scores USING (task, doc_id, model)
    UNION ALL
    SELECT 7, row, format('document {} of task ''{}'' has no split while others of its task have', doc_id, task)
    FROM documents QUALIFY split IS NULL AND count(split) OVER (PARTITION BY task) > 0
  )
SELECT row, fault FROM faults ORDER BY row, kind, fault LIMIT 1
