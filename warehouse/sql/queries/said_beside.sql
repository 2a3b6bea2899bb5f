-- What models said to the documents that one of them ($model) answered, in the order of documents and models; models that
-- missed one are left out. `said`: the choice, or a number that is equal where a document's answers are; -1 for none.
-- n_choices: NULL for answers.
WITH asked AS (
    SELECT o.task, o.doc_id FROM outcomes AS o WHERE o.benchmark = $benchmark AND o.model = $model
),
counted AS (
    SELECT c.task, c.doc_id, max(c.choice) + 1 AS n_choices FROM choice_logprobs AS c
    WHERE c.benchmark = $benchmark AND c.model = $model
    GROUP BY ALL
)
SELECT
    o.task, o.doc_id, o.split = 'train' AS is_train, o.model, o.correct, c.n_choices,
    CASE
        WHEN o.prediction IS NULL AND o.answer IS NULL THEN -1
        ELSE coalesce(o.prediction, dense_rank() OVER (PARTITION BY o.task, o.doc_id ORDER BY o.answer) - 1)
    END AS said
FROM outcomes AS o
JOIN asked AS a ON a.task = o.task AND a.doc_id = o.doc_id
LEFT JOIN counted AS c ON c.task = o.task AND c.doc_id = o.doc_id
WHERE o.benchmark = $benchmark AND list_contains($models, o.model)
QUALIFY count(*) OVER (PARTITION BY o.model) = (SELECT count(*) FROM asked)
ORDER BY o.task, o.doc_id, o.model;
