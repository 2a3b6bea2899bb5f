-- Gold answers, and other answers to their documents that are the same number, where both have text beside the number.
WITH measured AS (
    SELECT d.benchmark, d.task, d.doc_id, d.gold, c.canonical
    FROM docs AS d JOIN canonical AS c ON c.answer = d.gold
    WHERE d.label IS NULL AND regexp_full_match(c.canonical, '-?[0-9.e]+') AND regexp_matches(d.gold, '[^-−0-9.,\s]')
)
SELECT DISTINCT m.gold, s.answer
FROM measured AS m
JOIN scores AS s USING (benchmark, task, doc_id)
JOIN canonical AS c ON c.answer = s.answer AND c.canonical = m.canonical
WHERE s.answer <> m.gold AND regexp_matches(s.answer, '[^-−0-9.,\s]');
