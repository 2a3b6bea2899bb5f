-- The documents that runs decided, up to $limit of them at random: what models said by the views' rules, in percent, and what
-- the runs did. Texts of confidential documents are NULL unless $show.
WITH picked AS (
    SELECT
        d.task, d.doc_id, d.label, d.gold, left(d.question, $longest) AS question, d.choices,
        $show OR NOT coalesce(d.confidential, false) AND NOT list_contains($hidden, split_part(d.benchmark, '@', 1)) AS is_open
    FROM docs AS d
    SEMI JOIN (SELECT r.task, r.doc_id FROM decisions AS r WHERE r.benchmark = $benchmark AND list_contains($runs, r.run_id)) AS r
        ON r.task = d.task AND r.doc_id = d.doc_id
    WHERE d.benchmark = $benchmark
    ORDER BY md5(concat(d.task, chr(0), d.doc_id))
    LIMIT $limit
),
scored AS (
    SELECT c.task, c.doc_id, c.model, list(c.logprob ORDER BY c.choice) AS logprobs, max(c.logprob) AS highest
    FROM choice_logprobs AS c SEMI JOIN picked AS k ON k.task = c.task AND k.doc_id = c.doc_id
    WHERE c.benchmark = $benchmark AND list_contains($models, c.model)
    GROUP BY ALL
    HAVING bool_and(coalesce(isfinite(c.logprob) AND coalesce(c.logprob <= 1e-6 * c.n_tokens, true), false))
),
weighed AS (
    SELECT s.*, list_transform(s.logprobs, lambda l: exp(l - s.highest)) AS weights FROM scored AS s
),
given AS (
    SELECT p.task, p.doc_id, p.model, p.answer, p.prob
    FROM answer_probs AS p SEMI JOIN picked AS k ON k.task = p.task AND k.doc_id = p.doc_id
    WHERE p.benchmark = $benchmark AND list_contains($models, p.model)
),
said AS (
    SELECT
        w.task, w.doc_id, w.model, (list_position(w.logprobs, w.highest) - 1)::VARCHAR AS said,
        list_transform(w.weights, lambda x, i: {answer: (i - 1)::VARCHAR, percent: round(100 * x / list_sum(w.weights))::INT})
            AS shares
    FROM weighed AS w
    UNION ALL
    SELECT
        g.task, g.doc_id, g.model, any_value(o.answer),
        list({answer: g.answer, percent: round(100 * g.prob)::INT} ORDER BY g.prob DESC, g.answer)
    FROM given AS g JOIN predictions AS o
        ON o.benchmark = $benchmark AND o.task = g.task AND o.doc_id = g.doc_id AND o.model = g.model
    GROUP BY ALL
),
by_document AS (
    SELECT s.task, s.doc_id, list({model: s.model, said: s.said, shares: s.shares} ORDER BY s.model) AS said
    FROM said AS s GROUP BY s.task, s.doc_id
),
asked AS (
    SELECT
        r.run_id, r.task, r.doc_id, coalesce(r.prediction::VARCHAR, r.answer) AS said, r.correct, r.probability,
        coalesce(r.rounds, list_transform(r.pool, lambda m: {model: m, round: 1::INT})) AS calls
    FROM decisions AS r SEMI JOIN picked AS k ON k.task = r.task AND k.doc_id = r.doc_id
    WHERE r.benchmark = $benchmark AND list_contains($runs, r.run_id)
),
decided AS (
    SELECT
        a.task, a.doc_id,
        list({
            run_id: a.run_id, said: a.said, correct: a.correct, probability: a.probability,
            rounds: list_transform(
                list_sort(list_distinct(list_transform(a.calls, lambda c: c.round))),
                lambda n: list_transform(list_filter(a.calls, lambda c: c.round = n), lambda c: c.model)
            )
        } ORDER BY a.run_id) AS decided
    FROM asked AS a GROUP BY a.task, a.doc_id
)
SELECT k.*, b.said, d.decided
FROM picked AS k
LEFT JOIN by_document AS b ON b.task = k.task AND b.doc_id = k.doc_id
LEFT JOIN decided AS d ON d.task = k.task AND d.doc_id = k.doc_id
ORDER BY k.task, k.doc_id
