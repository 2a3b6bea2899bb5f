-- What a model said to each document that a probe ($probe_id) asked it again, then and now. n_beyond: how many of its
-- n_choices changed by more than is allowed, which for a token is $allowed nats; both are NULL for free answers.
-- shares_before, shares_now: the log-probs of a document's choices; given_before, given_now: the answers of its passes.
WITH moves AS (
    SELECT
        a.task, a.doc_id, count(*) AS n_choices, count(*) FILTER (
            abs(logprob_change(c.logprob, a.said.logprob)) > allowed_change($allowed, c.n_tokens)
        ) AS n_beyond,
        list(c.logprob ORDER BY c.choice) AS shares_before, list(a.said.logprob ORDER BY c.choice) AS shares_now
    FROM (SELECT p.*, unnest(p.choices) AS said FROM probe_answers AS p WHERE p.probe_id = $probe_id) AS a
    JOIN choice_logprobs AS c
        ON (c.model, c.benchmark, c.task, c.doc_id, c.choice) = (a.model, a.benchmark, a.task, a.doc_id, a.said.choice)
    GROUP BY ALL
),
given AS (
    SELECT s.model, s.benchmark, s.task, s.doc_id, list(s.answer ORDER BY s.pass) AS answers
    FROM answer_passes AS s
    SEMI JOIN probe_answers AS p
        ON p.probe_id = $probe_id AND (p.model, p.benchmark, p.task, p.doc_id) = (s.model, s.benchmark, s.task, s.doc_id)
    GROUP BY ALL
)
SELECT
    p.task, p.doc_id, m.n_choices, m.n_beyond, m.shares_before, m.shares_now, g.answers AS given_before,
    list_transform(p.passes, lambda s: s.answer) AS given_now,
    coalesce(n.prediction IS DISTINCT FROM o.prediction OR n.answer IS DISTINCT FROM o.answer, true) AS flipped,
    coalesce(n.correct, false)::INT - coalesce(o.correct, false)::INT AS effect
FROM probe_answers AS p
LEFT JOIN moves AS m USING (task, doc_id)
LEFT JOIN given AS g USING (model, benchmark, task, doc_id)
LEFT JOIN probe_predictions AS n USING (probe_id, model, benchmark, task, doc_id)
LEFT JOIN outcomes AS o USING (model, benchmark, task, doc_id)
WHERE p.probe_id = $probe_id
ORDER BY p.task, p.doc_id;
