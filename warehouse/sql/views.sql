-- A model's document with a score that is NaN, infinite or, where it was extracted, positive counts in no view: `doctor`
-- names it, and the next run extracts it again.
-- Every column is qualified: inside a macro that reads a view, a bare name means the macro's parameter of that name.

CREATE OR REPLACE VIEW choice_probs AS
WITH weighted AS (
    SELECT
        c.benchmark, c.task, c.doc_id, c.model, c.choice,
        exp(c.logprob - max(c.logprob) OVER document) AS weight,
        bool_and(coalesce(isfinite(c.logprob) AND coalesce(c.logprob <= 1e-6 * c.n_tokens, true), false)) OVER document AS counts
    FROM choice_logprobs AS c
    WINDOW document AS (PARTITION BY c.benchmark, c.task, c.doc_id, c.model)
)
SELECT
    w.benchmark, w.task, w.doc_id, w.model, w.choice,
    w.weight / sum(w.weight) OVER (PARTITION BY w.benchmark, w.task, w.doc_id, w.model) AS prob
FROM weighted AS w
WHERE w.counts;

-- What a choice's probability is after each trace; their mean is that of choice_probs.
CREATE OR REPLACE VIEW trace_probs AS
WITH scored AS (
    SELECT
        t.benchmark, t.task, t.doc_id, t.model, t.trace, unnest(range(len(t.token_logprobs)))::INT AS choice,
        unnest(list_transform(t.token_logprobs, lambda l: list_sum(l))) AS logprob
    FROM traces AS t
),
weighted AS (
    SELECT s.*, exp(s.logprob - max(s.logprob) OVER same) AS weight
    FROM scored AS s
    WINDOW same AS (PARTITION BY s.benchmark, s.task, s.doc_id, s.model, s.trace)
)
SELECT
    w.benchmark, w.task, w.doc_id, w.model, w.trace, w.choice,
    w.weight / sum(w.weight) OVER (PARTITION BY w.benchmark, w.task, w.doc_id, w.model, w.trace) AS prob
FROM weighted AS w;

-- An answer's share of all passes: passes without an answer count in the denominator only.
CREATE OR REPLACE VIEW answer_probs AS
WITH given AS (
    SELECT p.benchmark, p.task, p.doc_id, p.model, p.answer, count(*) AS n FROM answer_passes AS p GROUP BY ALL
),
shares AS (
    SELECT g.*, g.n / sum(g.n) OVER (PARTITION BY g.benchmark, g.task, g.doc_id, g.model) AS prob FROM given AS g
)
SELECT s.benchmark, s.task, s.doc_id, s.model, s.answer, s.prob FROM shares AS s WHERE s.answer IS NOT NULL;

-- Of the rows of one document: whether all of its choices' scores count, the most likely choice, and the answer given most.
CREATE OR REPLACE MACRO all_count(logprob, n_tokens) AS
    bool_and(coalesce(isfinite(logprob) AND coalesce(logprob <= 1e-6 * n_tokens, true), false));

CREATE OR REPLACE MACRO likeliest(choice, logprob, unanswered) AS
    CASE WHEN count(unanswered) = 0 THEN arg_max(choice, {l: logprob, first: -choice}) END;

CREATE OR REPLACE MACRO most_given(answer, n, earliest) AS
    arg_max(answer, {n: n, first: -earliest}) FILTER (answer IS NOT NULL);

-- What each model says to each document, and whether it is right: a document without an answer is wrong.
-- confidence: the probability of what it says.
-- Choices: the most likely one, ties to the lowest index. Answers: the one most passes gave, ties to the
-- earliest pass; NULL, and wrong, where no pass gave one.
CREATE OR REPLACE VIEW predictions AS
WITH chosen AS (
    SELECT
        c.benchmark, c.task, c.doc_id, c.model, max(c.logprob) AS highest, list(c.logprob) AS logprobs,
        warehouse.likeliest(c.choice, c.logprob, c.unanswered) AS prediction
    FROM choice_logprobs AS c
    GROUP BY ALL
    HAVING warehouse.all_count(c.logprob, c.n_tokens)
),
given AS (
    SELECT
        p.benchmark, p.task, p.doc_id, p.model, p.answer, count(*) AS n, min(p.pass) AS earliest
    FROM answer_passes AS p
    GROUP BY ALL
),
answered AS (
    SELECT
        g.benchmark, g.task, g.doc_id, g.model, max(g.n) FILTER (g.answer IS NOT NULL) / sum(g.n) AS confidence,
        warehouse.most_given(g.answer, g.n, g.earliest) AS answer
    FROM given AS g
    GROUP BY ALL
)
SELECT
    c.benchmark, c.task, c.doc_id, c.model, c.prediction, NULL::VARCHAR AS answer,
    coalesce(c.prediction = d.label, false) AS correct,
    CASE WHEN c.prediction IS NOT NULL THEN 1 / list_sum(list_transform(c.logprobs, lambda l: exp(l - c.highest))) END
        AS confidence,
    d.split
FROM chosen AS c JOIN docs AS d USING (benchmark, task, doc_id)
UNION ALL
SELECT
    a.benchmark, a.task, a.doc_id, a.model, NULL::INT AS prediction, a.answer,
    coalesce(a.answer = d.gold, false) AS correct, a.confidence, d.split
FROM answered AS a JOIN docs AS d USING (benchmark, task, doc_id);

-- The same without confidence: what every statistic is computed from.
CREATE OR REPLACE VIEW outcomes AS
SELECT p.benchmark, p.task, p.doc_id, p.split, p.model, p.prediction, p.answer, p.correct FROM predictions AS p;

-- stderr: over documents, as lm-eval's; NULL for a single document. ties: of answered documents, whose likeliest choices
-- are equally likely, as where logits were rounded; NULL where that was not counted.
CREATE OR REPLACE VIEW accuracy AS
WITH by_task AS (
    SELECT
        o.benchmark, o.task, o.model, count(*) AS n, avg(o.correct::INT) AS accuracy,
        stddev_samp(o.correct::INT) / sqrt(count(*)) AS stderr
    FROM outcomes AS o
    GROUP BY ALL
)
SELECT t.*, e.n_ties / nullif(e.n_docs - coalesce(e.n_unanswered, 0), 0) AS ties
FROM by_task AS t
LEFT JOIN extractions AS e ON e.benchmark = t.benchmark AND e.task = t.task AND e.model = t.model;

-- A benchmark's documents pooled, beside the unweighted mean of its tasks.
CREATE OR REPLACE VIEW benchmark_accuracy AS
WITH by_task AS (
    SELECT o.benchmark, o.task, o.model, count(*) AS n, sum(o.correct::INT) AS n_right FROM outcomes AS o GROUP BY ALL
),
tied AS (
    SELECT
        e.benchmark, e.model,
        sum(e.n_ties) / nullif(sum(e.n_docs - coalesce(e.n_unanswered, 0)) FILTER (e.n_ties IS NOT NULL), 0) AS ties
    FROM extractions AS e
    WHERE e.fault IS NULL
    GROUP BY ALL
),
pooled AS (
    SELECT
        t.benchmark, t.model, sum(t.n)::BIGINT AS n, count(*) AS n_tasks,
        sum(t.n_right) / sum(t.n) AS accuracy, avg(t.n_right / t.n) AS mean_over_tasks
    FROM by_task AS t
    GROUP BY ALL
)
SELECT
    p.benchmark, p.model, p.n, p.n_tasks, p.accuracy,
    sqrt(p.accuracy * (1 - p.accuracy) / nullif(p.n - 1, 0)) AS stderr, p.mean_over_tasks, t.ties
FROM pooled AS p
LEFT JOIN tied AS t ON t.benchmark = p.benchmark AND t.model = p.model;

-- A run enters its models and tasks when it begins. seconds_left: of the engine, at the mean of the tasks that are done.
CREATE OR REPLACE VIEW progress AS
SELECT
    m.model, t.benchmark, count(*) AS n_tasks, count(e.model) AS n_done, coalesce(sum(e.n_docs), 0)::BIGINT AS n_docs,
    sum(e.n_prompt_tokens + e.n_generated_tokens) / nullif(sum(e.seconds), 0) AS tokens_per_second,
    (count(*) - count(e.model)) * avg(e.seconds) AS seconds_left, max(e.committed_at) AS committed_at
FROM models AS m CROSS JOIN tasks AS t
LEFT JOIN extractions AS e
    ON e.model = m.model AND e.benchmark = t.benchmark AND e.task = t.task AND e.fault IS NULL
GROUP BY ALL;
