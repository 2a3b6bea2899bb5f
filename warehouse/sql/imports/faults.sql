-- Everything wrong with the rows of an import, from temp tables docs and scores, into temp.faults. A step is a kind of
-- fault; what follows from an earlier one of the same row does not count.
INSERT INTO faults
WITH described AS (
    SELECT d.*, coalesce(len(d.choices), s.n_scores) AS n_choices
    FROM docs AS d
    LEFT JOIN (
        SELECT s.benchmark, s.task, s.doc_id, arg_min(len(s.choice_logprobs), s.row) AS n_scores
        FROM scores AS s WHERE s.choice_logprobs IS NOT NULL GROUP BY ALL
    ) AS s USING (benchmark, task, doc_id)
),
kinds AS (
    SELECT d.benchmark, count(d.label) AS n_labels, count(*) AS n FROM docs AS d GROUP BY ALL
),
names AS (
    SELECT 'docs' AS file, d.row, 'benchmark' AS what, d.benchmark AS name, 96 AS longest FROM docs AS d
    UNION ALL
    SELECT 'docs', d.row, 'task', d.task, 96 FROM docs AS d
    UNION ALL
    SELECT 'scores', s.row, 'model', s.model, 300 FROM scores AS s
),
graded AS (
    SELECT s.*, d.row AS doc_row, d.label, d.n_choices
    FROM scores AS s LEFT JOIN described AS d USING (benchmark, task, doc_id)
),
found AS (
    SELECT 10 AS step, 'docs' AS file, d.row, format('no {}', CASE
        WHEN d.benchmark IS NULL THEN 'benchmark' WHEN d.task IS NULL THEN 'task' ELSE 'doc_id' END) AS reason
    FROM docs AS d WHERE d.benchmark IS NULL OR d.task IS NULL OR d.doc_id IS NULL
    UNION ALL
    SELECT 10, 'scores', s.row, format('no {}', CASE
        WHEN s.benchmark IS NULL THEN 'benchmark' WHEN s.task IS NULL THEN 'task'
        WHEN s.doc_id IS NULL THEN 'doc_id' ELSE 'model' END)
    FROM scores AS s WHERE s.benchmark IS NULL OR s.task IS NULL OR s.doc_id IS NULL OR s.model IS NULL
    UNION ALL
    SELECT 20, 'docs', d.row, format('doc_id {} is negative; count from 0', d.doc_id) FROM docs AS d WHERE d.doc_id < 0
    UNION ALL
    SELECT 21, 'docs', d.row, 'the task may not be called *, which stands for all tasks'
    FROM docs AS d WHERE d.task = '*'
    UNION ALL
    SELECT CASE n.what WHEN 'task' THEN 28 ELSE 22 END, n.file, n.row, format('{} {} {}', n.what, to_json(left(n.name, 100))::VARCHAR, CASE
        WHEN trim(n.name) = '' THEN 'is empty'
        WHEN regexp_matches(n.name, '\p{Cc}') THEN 'has a control character; leave it out'
        WHEN regexp_matches(n.name, '[\p{Cf}\p{Zl}\p{Zp}\x{115F}\x{1160}\x{3164}\x{FFA0}]')
            THEN format('has an invisible character (U+{:04X}); leave it out', ord(regexp_extract(
                n.name, '[\p{Cf}\p{Zl}\p{Zp}\x{115F}\x{1160}\x{3164}\x{FFA0}]'
            )))
        WHEN length(n.name) > n.longest THEN format('is longer than {} characters', n.longest)
        WHEN regexp_matches(n.name, '^[\s\p{Z}]|[\s\p{Z}]$') THEN 'begins or ends with a space; leave it out'
        ELSE 'must not start with a dot or contain /, \ or .., because files are named after it' END)
    FROM names AS n
    WHERE regexp_matches(n.name, '^$|^[\s\p{Z}]|[\s\p{Z}]$|\p{Cc}|[\p{Cf}\p{Zl}\p{Zp}\x{115F}\x{1160}\x{3164}\x{FFA0}]') OR length(n.name) > n.longest
        OR n.what <> 'model' AND regexp_matches(n.name, '^\.|\.\.|[/\\]')
    UNION ALL
    SELECT 23, 'docs', d.row, format('split {} is neither train nor test; leave others out', d.split)
    FROM docs AS d WHERE d.split NOT IN ('train', 'test')
    UNION ALL
    SELECT 24, 'scores', s.row, format('pass {} is not between 0 and {}; count from 0', s.pass, 2147483647)
    FROM scores AS s WHERE s.pass NOT BETWEEN 0 AND 2147483647
    UNION ALL
    SELECT 25, 'docs', max(d.row), format('duplicate document {} of {}/{}; keep one row of it',
        coalesce(any_value(d.source_id), d.doc_id::VARCHAR), d.benchmark, d.task)
    FROM docs AS d GROUP BY d.benchmark, d.task, d.doc_id HAVING count(*) > 1
    UNION ALL
    SELECT 26, 'docs', d.row, 'neither a label (for choices) nor a gold answer; give one, or leave the document out'
    FROM docs AS d WHERE d.label IS NULL AND d.gold IS NULL
    UNION ALL
    SELECT 27, 'docs', d.row, format('no label, but other documents of {} have one', d.benchmark)
    FROM docs AS d JOIN kinds AS k USING (benchmark) WHERE d.label IS NULL AND k.n_labels > 0
    UNION ALL
    SELECT 30, 'scores', g.row,
        format('document {} of {}/{} is not described; add it to the documents, or leave its scores out', g.doc_id, g.benchmark, g.task)
    FROM graded AS g WHERE g.doc_row IS NULL
    UNION ALL
    SELECT 40, 'scores', max(s.row), format('duplicate row for document {} of {}/{}, model {}{}; keep one, or number answers by pass',
        s.doc_id, s.benchmark, s.task, s.model, coalesce(format(', pass {}', s.pass), ''))
    FROM scores AS s GROUP BY s.benchmark, s.task, s.doc_id, s.model, s.pass HAVING count(*) > 1
    UNION ALL
    SELECT 50, 'scores', g.row,
        format('no choice_logprobs, but document {} of {}/{} has a label; score its choices, or compare answers as texts by --columns LABEL=gold', g.doc_id, g.benchmark, g.task)
    FROM graded AS g WHERE g.label IS NOT NULL AND g.choice_logprobs IS NULL
    UNION ALL
    SELECT 51, 'scores', g.row,
        format('choice_logprobs, but document {} of {}/{} has no label; add it', g.doc_id, g.benchmark, g.task)
    FROM graded AS g WHERE g.doc_row IS NOT NULL AND g.label IS NULL AND g.choice_logprobs IS NOT NULL
    UNION ALL
    SELECT 60, 'scores', g.row, format('{} scores, but document {} of {}/{} has {} choices',
        len(g.choice_logprobs), g.doc_id, g.benchmark, g.task, g.n_choices)
    FROM graded AS g WHERE len(g.choice_logprobs) <> g.n_choices
    UNION ALL
    SELECT 61, 'scores', s.row, format('{} lists {} values for {} choices', CASE
        WHEN len(s.is_greedy) <> len(s.choice_logprobs) THEN 'is_greedy' ELSE 'choice_tokens' END,
        CASE WHEN len(s.is_greedy) <> len(s.choice_logprobs) THEN len(s.is_greedy) ELSE len(s.choice_tokens) END,
        len(s.choice_logprobs))
    FROM scores AS s
    WHERE len(s.is_greedy) <> len(s.choice_logprobs) OR len(s.choice_tokens) <> len(s.choice_logprobs)
    UNION ALL
    SELECT 70, 'docs', d.row, format('choice {} has no text', list_position(d.choices, NULL) - 1)
    FROM docs AS d WHERE list_contains(list_transform(d.choices, lambda c: c IS NULL), true)
    UNION ALL
    SELECT 71, 'scores', s.row, format('choice_logprobs {} are not all finite numbers', s.choice_logprobs::VARCHAR)
    FROM scores AS s
    WHERE list_bool_or(list_transform(s.choice_logprobs, lambda score: score IS NULL OR NOT isfinite(score)))
    UNION ALL
    SELECT 80, 'docs', d.row, format('label {} is out of range: document {} of {}/{} has {} choices',
        d.label, d.doc_id, d.benchmark, d.task, d.n_choices)
    -- A log's document whose target is none of its choices (-1) is one that every model gets wrong.
    FROM described AS d WHERE d.label < (d.doc_hash IS NOT NULL)::INT * -1 OR d.label >= d.n_choices
)
SELECT f.step, f.file, f.row, f.reason FROM found AS f;
