-- What a model says to each document that a probe asked, by the rules of `predictions`. No other view reads these
-- answers.
CREATE OR REPLACE VIEW probe_predictions AS
WITH choices AS (
    SELECT a.probe_id, a.model, a.benchmark, a.task, a.doc_id, a.probability, unnest(a.choices) AS said
    FROM probe_answers AS a
),
chosen AS (
    SELECT
        c.probe_id, c.model, c.benchmark, c.task, c.doc_id, c.probability,
        warehouse.likeliest(c.said.choice, c.said.logprob, c.said.unanswered) AS prediction,
        list(c.said.logprob ORDER BY c.said.choice) AS logprobs
    FROM choices AS c
    GROUP BY ALL
    HAVING warehouse.all_count(c.said.logprob, c.said.n_tokens)
),
weighted AS (
    SELECT c.*, list_transform(c.logprobs, lambda l: exp(l - list_max(c.logprobs))) AS weights FROM chosen AS c
),
passes AS (
    SELECT a.probe_id, a.model, a.benchmark, a.task, a.doc_id, a.probability, unnest(a.passes) AS said
    FROM probe_answers AS a
),
given AS (
    SELECT
        p.probe_id, p.model, p.benchmark, p.task, p.doc_id, p.probability, p.said.answer AS answer, count(*) AS n,
        min(p.said.pass) AS earliest
    FROM passes AS p
    GROUP BY ALL
),
answered AS (
    SELECT
        g.probe_id, g.model, g.benchmark, g.task, g.doc_id, g.probability,
        warehouse.most_given(g.answer, g.n, g.earliest) AS answer
    FROM given AS g
    GROUP BY ALL
)
SELECT
    w.probe_id, w.model, w.benchmark, w.task, w.doc_id, w.probability, w.prediction, NULL::VARCHAR AS answer,
    coalesce(w.prediction = d.label, false) AS correct,
    list_transform(w.weights, lambda x: x / list_sum(w.weights)) AS probs
FROM weighted AS w JOIN docs AS d USING (benchmark, task, doc_id)
UNION ALL
SELECT
    a.probe_id, a.model, a.benchmark, a.task, a.doc_id, a.probability, NULL::INT AS prediction, a.answer,
    coalesce(a.answer = d.gold, false) AS correct, NULL::DOUBLE[] AS probs
FROM answered AS a JOIN docs AS d USING (benchmark, task, doc_id);

-- What each probe says of its model on a benchmark: estimates with the ends of their 95 % intervals, and the verdict.
CREATE OR REPLACE VIEW probes AS
SELECT
    e.probe_id, e.model, e.benchmark, any_value(e.n) AS n, any_value(e.n_docs) AS n_docs, any_value(e.verdict) AS verdict,
    any_value(e.value) FILTER (e.metric = 'accuracy') AS accuracy,
    any_value(e.low) FILTER (e.metric = 'accuracy') AS accuracy_low,
    any_value(e.high) FILTER (e.metric = 'accuracy') AS accuracy_high,
    any_value(e.value) FILTER (e.metric = 'gain') AS gain, any_value(e.low) FILTER (e.metric = 'gain') AS gain_low,
    any_value(e.high) FILTER (e.metric = 'gain') AS gain_high, max(e.estimated_at) AS estimated_at
FROM probe_estimates AS e
GROUP BY e.probe_id, e.model, e.benchmark;
