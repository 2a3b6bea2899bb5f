-- Labels corrected here stay corrected when their documents are given again unchanged.
UPDATE temp.given SET label = c.label, gold = c.gold
FROM corrections AS c
WHERE (given.benchmark, given.task, given.doc_id) = (c.benchmark, c.task, c.doc_id)
    AND (given.doc_hash, given.label, given.gold) IS NOT DISTINCT FROM (c.doc_hash, c.label_before, c.gold_before);
