-- One row for each partition of temp.changed that is not the same. Differences are after minus before, over the documents
-- that are the same in both catalogues, and what became right or wrong is so by the labels of `warehouse`, unless nothing
-- but labels changed; accuracies are those that either snapshot shows.
WITH changed AS (SELECT c.* FROM temp.changed AS c WHERE c.change <> 'same'),
answered AS (SELECT c.* FROM changed AS c WHERE c.change IN ('replaced', 'rewritten')),
shared AS (
    SELECT benchmark, task, doc_id, a.label, a.gold, b.label AS old_label, b.gold AS old_gold
    FROM before.docs AS b JOIN warehouse.docs AS a USING (benchmark, task, doc_id)
    SEMI JOIN changed USING (benchmark, task)
    WHERE b.doc_hash IS NOT DISTINCT FROM a.doc_hash AND b.choices IS NOT DISTINCT FROM a.choices
),
moves AS (
    SELECT
        model, benchmark, task,
        logprob_change(b.logprob, a.logprob) AS difference, allowed_change(c.allowed, a.n_tokens) AS allowed
    FROM before.choice_logprobs AS b
    JOIN warehouse.choice_logprobs AS a USING (model, benchmark, task, doc_id, choice)
    JOIN answered AS c USING (model, benchmark, task)
    SEMI JOIN shared USING (benchmark, task, doc_id)
),
logprobs AS (
    SELECT
        m.model, m.benchmark, m.task,
        {
            n: count(*), n_moved: count(*) FILTER (m.difference <> 0),
            n_beyond: count(*) FILTER (abs(m.difference) > m.allowed), mean: avg(m.difference),
            quantiles: quantile_cont(m.difference, [0.01, 0.25, 0.5, 0.75, 0.99]),
            largest: max(abs(m.difference))
        } AS logprobs
    FROM moves AS m
    GROUP BY ALL
),
texts AS (
    SELECT
        model, benchmark, task,
        {n: count(*), n_changed: count(*) FILTER ((a.text, a.answer) IS DISTINCT FROM (b.text, b.answer))} AS texts
    FROM before.answer_passes AS b
    JOIN warehouse.answer_passes AS a USING (model, benchmark, task, doc_id, pass)
    SEMI JOIN answered USING (model, benchmark, task)
    SEMI JOIN shared USING (benchmark, task, doc_id)
    GROUP BY ALL
),
said_before AS (FROM before.outcomes SEMI JOIN changed USING (model, benchmark, task)),
said_after AS (FROM warehouse.outcomes SEMI JOIN changed USING (model, benchmark, task)),
graded AS (
    SELECT
        model, benchmark, task,
        b.prediction IS DISTINCT FROM a.prediction OR b.answer IS DISTINCT FROM a.answer AS flipped,
        CASE
            WHEN c.change = 'relabelled' THEN coalesce(b.prediction = s.old_label, b.answer = s.old_gold, false)
            ELSE coalesce(b.prediction = s.label, b.answer = s.gold, false)
        END AS was_right,
        coalesce(a.prediction = s.label, a.answer = s.gold, false) AS is_right
    FROM said_before AS b
    JOIN said_after AS a USING (model, benchmark, task, doc_id)
    JOIN shared AS s USING (benchmark, task, doc_id)
    JOIN changed AS c USING (model, benchmark, task)
),
documents AS (
    SELECT
        g.model, g.benchmark, g.task, count(*) AS n_shared, count(*) FILTER (g.flipped) AS flipped,
        count(*) FILTER (g.is_right AND NOT g.was_right) AS became_right,
        count(*) FILTER (g.was_right AND NOT g.is_right) AS became_wrong
    FROM graded AS g
    GROUP BY ALL
),
shown AS (
    SELECT s.said, s.model, s.benchmark, s.task, count(s.correct) AS n, avg(s.correct::INT) AS accuracy
    FROM (SELECT 'before' AS said, * FROM said_before UNION ALL SELECT 'after' AS said, * FROM said_after) AS s
    GROUP BY ALL
)
SELECT
    c.change, c.model, c.benchmark, c.task, c.low_precision, c.ran_before, c.ran_after, l.logprobs, t.texts,
    coalesce(b.n, 0) AS n_before, coalesce(a.n, 0) AS n_after, coalesce(d.n_shared, 0) AS n_shared,
    coalesce(d.flipped, 0) AS flipped, coalesce(d.became_right, 0) AS became_right,
    coalesce(d.became_wrong, 0) AS became_wrong, b.accuracy AS accuracy_before, a.accuracy AS accuracy_after
FROM changed AS c
LEFT JOIN documents AS d USING (model, benchmark, task)
LEFT JOIN (FROM shown WHERE said = 'before') AS b USING (model, benchmark, task)
LEFT JOIN (FROM shown WHERE said = 'after') AS a USING (model, benchmark, task)
LEFT JOIN logprobs AS l USING (model, benchmark, task)
LEFT JOIN texts AS t USING (model, benchmark, task)
ORDER BY c.benchmark, c.task, c.model;
