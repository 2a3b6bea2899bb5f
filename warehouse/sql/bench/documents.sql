-- Made-up documents, numbered through, in 57 tasks, and models that answered them.
INSERT INTO docs BY NAME
SELECT
    'made-up' AS benchmark, printf('task %02d', t.i * 57 // $documents) AS task, t.i AS doc_id,
    (hash(t.i) % $choices::UBIGINT)::INT AS label, CASE WHEN t.i % 5 < 4 THEN 'train' ELSE 'test' END AS split
FROM range($documents) AS t(i);

INSERT INTO extractions BY NAME
SELECT
    printf('%s, %03d', d.task, m.i) AS extraction_id, 'made-up' AS benchmark, d.task, printf('model %03d', m.i) AS model,
    d.n_docs
FROM (SELECT task, count(*) AS n_docs FROM docs GROUP BY task) AS d, range($models) AS m(i);
