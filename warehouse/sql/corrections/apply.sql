-- Corrects the documents of temp.changed, and remembers what they were; forgets those that are as they were at first.
UPDATE docs SET label = c.label, gold = c.gold
FROM temp.changed AS c
WHERE (docs.benchmark, docs.task, docs.doc_id) = (c.benchmark, c.task, c.doc_id);

DELETE FROM corrections
WHERE (benchmark, task, doc_id) IN (SELECT c.benchmark, c.task, c.doc_id FROM temp.changed AS c);

INSERT INTO corrections BY NAME
SELECT c.*, now() AS corrected_at FROM temp.changed AS c
WHERE (c.label, c.gold) IS DISTINCT FROM (c.label_before, c.gold_before);
