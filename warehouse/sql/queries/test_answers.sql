-- What models say to test documents, by the places of both. code: equal, on one document, for equal answers; -1 for none.
SELECT a.number, list_position($models, a.model) - 1 AS model, coalesce(a.code, -1) AS code, a.correct
FROM numbered_answers($benchmark, $models, '*', 'test') AS a
