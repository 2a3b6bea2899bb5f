-- What a model answered to the documents of a benchmark whose texts may leave (temp.withheld holds the others).
WITH scored AS (
    SELECT c.task, c.doc_id, list(c.logprob ORDER BY c.choice) AS logprobs
    FROM choice_logprobs AS c WHERE c.benchmark = $benchmark AND c.model = $model GROUP BY ALL
),
given AS (
    SELECT p.task, p.doc_id, list(p.answer ORDER BY p.pass) AS answers, list(p.text ORDER BY p.pass) AS texts
    FROM answer_passes AS p WHERE p.benchmark = $benchmark AND p.model = $model GROUP BY ALL
)
SELECT
    d.task, d.doc_id, d.doc_hash, d.split, d.question, d.choices, d.label, d.gold, p.prediction, p.answer, p.correct,
    s.logprobs, g.answers, g.texts
FROM predictions AS p
JOIN docs AS d USING (benchmark, task, doc_id)
LEFT JOIN scored AS s USING (task, doc_id)
LEFT JOIN given AS g USING (task, doc_id)
ANTI JOIN temp.withheld AS w ON (w.benchmark, w.task, w.doc_id) = (d.benchmark, d.task, d.doc_id)
WHERE p.benchmark = $benchmark AND p.model = $model
ORDER BY d.task, d.doc_id;
