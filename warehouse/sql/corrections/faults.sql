-- The first row of temp.asked that is not a valid correction.
WITH known AS (
    SELECT
        benchmark, task, doc_id, d.source_id, d.label,
        coalesce(len(d.choices), (
            SELECT max(c.choice) + 1 FROM choice_logprobs AS c
            WHERE (c.benchmark, c.task, c.doc_id) = (d.benchmark, d.task, d.doc_id)
        )) AS n_choices
    FROM docs AS d SEMI JOIN temp.asked USING (benchmark, task, doc_id)
),
faults AS (
    SELECT a.row, CASE
        WHEN a.benchmark IS NULL OR a.task IS NULL OR coalesce(a.doc_id::VARCHAR, a.source_id) IS NULL
            THEN 'no benchmark, task, or doc_id (source_id for ids that are texts)'
        WHEN k.doc_id IS NULL
            THEN format('{}/{} has no document {}', a.benchmark, a.task, coalesce(a.doc_id::VARCHAR, a.source_id))
        WHEN a.source_id <> k.source_id THEN format(
            'document {} of {}/{} has the source_id {}, not {}; name it by one of the two',
            a.doc_id, a.benchmark, a.task, k.source_id, a.source_id)
        WHEN count(*) OVER (PARTITION BY a.benchmark, a.task, a.doc_id) > 1
            THEN format('duplicate document {} of {}/{}', a.doc_id, a.benchmark, a.task)
        WHEN k.n_choices IS NOT NULL AND a.label IS NULL
            THEN format('no label, but document {} of {}/{} has choices', a.doc_id, a.benchmark, a.task)
        WHEN k.n_choices IS NULL AND a.gold IS NULL
            THEN format('no gold answer, but document {} of {}/{} has no choices', a.doc_id, a.benchmark, a.task)
        WHEN k.n_choices IS NULL AND a.label IS NOT NULL
            THEN format('a label, but document {} of {}/{} has no choices', a.doc_id, a.benchmark, a.task)
        WHEN a.label < 0 OR a.label >= k.n_choices THEN format(
            'label {} is out of range: document {} of {}/{} has {} choices',
            a.label, a.doc_id, a.benchmark, a.task, k.n_choices)
    END AS reason
    FROM temp.asked AS a LEFT JOIN known AS k USING (benchmark, task, doc_id)
)
SELECT f.row, f.reason FROM faults AS f WHERE f.reason IS NOT NULL ORDER BY f.row LIMIT 1;
