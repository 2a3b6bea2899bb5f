-- Corrects the documents of temp.changed, and remembers what they were, and when: also of those that are as they were at
-- first again, since runs in between read other labels.
UPDATE docs SET label = c.label, gold = c.gold
FROM temp.changed AS c
WHERE (docs.benchmark, docs.task, docs.doc_id) = (c.benchmark, c.task, c.doc_id);

DELETE FROM corrections
WHERE (benchmark, task, doc_id) IN (SELECT c.benchmark, c.task, c.doc_id FROM temp.changed AS c);

INSERT INTO corrections BY NAME
SELECT c.*, now() AS corrected_at FROM temp.changed AS c;
