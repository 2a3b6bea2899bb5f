-- Made-up documents, numbered through, in tasks of 250, and models that answered them.
INSERT INTO docs BY NAME
SELECT
    'made-up' AS benchmark, printf('task %04d', t.i // 250) AS task, t.i % 250 AS doc_id,
    (hash(t.i) % $choices)::INT AS label, CASE WHEN t.i % 250 < 200 THEN 'train' ELSE 'test' END AS split
FROM range($documents) AS t(i);

INSERT INTO extractions BY NAME
SELECT 'made-up' AS benchmark, d.task, printf('model %03d', m.i) AS model, count(*) AS n_docs
FROM docs AS d, range($models) AS m(i)
GROUP BY ALL;
