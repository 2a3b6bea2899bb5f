-- One row for each partition of temp.compared that moved, over the documents that are the same in both catalogues;
-- differences are after minus before, and answers are right by the labels of `warehouse`.
WITH moved AS (SELECT c.* FROM temp.compared AS c WHERE c.change = 'moved'),
shared AS (
    SELECT benchmark, task, doc_id, a.label, a.gold
    FROM before.docs AS b JOIN warehouse.docs AS a USING (benchmark, task, doc_id)
    SEMI JOIN moved USING (benchmark, task)
    WHERE b.doc_hash IS NOT DISTINCT FROM a.doc_hash AND b.choices IS NOT DISTINCT FROM a.choices
),
differences AS (
    SELECT
        model, benchmark, task,
        CASE WHEN a.logprob = b.logprob THEN 0 ELSE a.logprob - b.logprob END AS difference,
        m.allowed * sqrt(greatest(coalesce(a.n_tokens, 1), 1)) AS allowed
    FROM before.choice_logprobs AS b
    JOIN warehouse.choice_logprobs AS a USING (model, benchmark, task, doc_id, choice)
    JOIN moved AS m USING (model, benchmark, task)
    SEMI JOIN shared USING (benchmark, task, doc_id)
),
logprobs AS (
    SELECT
        d.model, d.benchmark, d.task,
        {
            n: count(*), n_moved: count(*) FILTER (d.difference <> 0),
            n_beyond: count(*) FILTER (abs(d.difference) > d.allowed), mean: avg(d.difference),
            mean_moved: coalesce(avg(d.difference) FILTER (d.difference <> 0), 0), largest: max(abs(d.difference))
        } AS logprobs
    FROM differences AS d
    GROUP BY ALL
),
texts AS (
    SELECT
        model, benchmark, task,
        {n: count(*), n_changed: count(*) FILTER ((a.text, a.answer) IS DISTINCT FROM (b.text, b.answer))} AS texts
    FROM before.answer_passes AS b
    JOIN warehouse.answer_passes AS a USING (model, benchmark, task, doc_id, pass)
    SEMI JOIN moved USING (model, benchmark, task)
    SEMI JOIN shared USING (benchmark, task, doc_id)
    GROUP BY ALL
),
said_before AS (FROM before.outcomes SEMI JOIN moved USING (model, benchmark, task)),
said_after AS (FROM warehouse.outcomes SEMI JOIN moved USING (model, benchmark, task)),
said AS (
    SELECT
        model, benchmark, task,
        b.prediction IS DISTINCT FROM a.prediction OR b.answer IS DISTINCT FROM a.answer AS flipped,
        coalesce(b.prediction = s.label, b.answer = s.gold, false) AS was_right,
        coalesce(a.prediction = s.label, a.answer = s.gold, false) AS is_right
    FROM said_before AS b
    JOIN said_after AS a USING (model, benchmark, task, doc_id)
    JOIN shared AS s USING (benchmark, task, doc_id)
),
documents AS (
    SELECT
        s.model, s.benchmark, s.task, count(*) AS n_docs, count(*) FILTER (s.flipped) AS flipped,
        count(*) FILTER (s.is_right AND NOT s.was_right) AS became_right,
        count(*) FILTER (s.was_right AND NOT s.is_right) AS became_wrong,
        avg(s.was_right::INT) AS accuracy_before, avg(s.is_right::INT) AS accuracy_after
    FROM said AS s
    GROUP BY ALL
)
SELECT
    m.model, m.benchmark, m.task, m.rewritten, m.low_precision, m.ran_before, m.ran_after, l.logprobs, t.texts,
    d.* EXCLUDE (model, benchmark, task)
FROM moved AS m
LEFT JOIN documents AS d USING (model, benchmark, task)
LEFT JOIN logprobs AS l USING (model, benchmark, task)
LEFT JOIN texts AS t USING (model, benchmark, task)
ORDER BY m.model, m.benchmark, m.task;
