CREATE OR REPLACE VIEW choice_probs AS
WITH shifted AS (
    SELECT *, exp(logprob - max(logprob) OVER (PARTITION BY benchmark, task, doc_id, model)) AS weight
    FROM choice_logprobs
)
SELECT
    benchmark, task, doc_id, model, choice,
    weight / sum(weight) OVER (PARTITION BY benchmark, task, doc_id, model) AS prob
FROM shifted;

-- An answer's share of all passes: those without an answer count below the line only.
CREATE OR REPLACE VIEW answer_probs AS
WITH passes AS (
    SELECT benchmark, task, doc_id, model, answer, count(*) AS n, min(pass) AS earliest
    FROM answer_passes
    GROUP BY ALL
),
shares AS (
    SELECT *, n / sum(n) OVER (PARTITION BY benchmark, task, doc_id, model) AS prob FROM passes
)
SELECT benchmark, task, doc_id, model, answer, prob FROM shares WHERE answer IS NOT NULL;

-- Choices: the most likely one, ties to the lowest index. Answers: the one most passes gave, ties to the
-- earliest pass; NULL, and wrong, where no pass gave one.
CREATE OR REPLACE VIEW predictions AS
WITH scored AS (
    SELECT benchmark, task, doc_id, model, max(logprob) AS top, list({c: choice, l: logprob}) AS scores
    FROM choice_logprobs
    GROUP BY ALL
),
chosen AS (
    SELECT
        benchmark, task, doc_id, model,
        list_min([s.c FOR s IN scores IF s.l = top]) AS prediction,
        1 / list_sum([exp(s.l - top) FOR s IN scores]) AS confidence
    FROM scored
),
passes AS (
    SELECT benchmark, task, doc_id, model, answer, count(*) AS n, min(pass) AS earliest
    FROM answer_passes
    GROUP BY ALL
),
answered AS (
    SELECT
        benchmark, task, doc_id, model,
        arg_max(answer, {n: n, earliest: -earliest}) FILTER (answer IS NOT NULL) AS answer,
        max(n) FILTER (answer IS NOT NULL) / sum(n) AS confidence
    FROM passes
    GROUP BY ALL
)
SELECT
    benchmark, task, doc_id, model, p.prediction, NULL::VARCHAR AS answer,
    coalesce(p.prediction = d.label, false) AS correct, p.confidence
FROM chosen AS p JOIN docs AS d USING (benchmark, task, doc_id)
UNION ALL
SELECT
    benchmark, task, doc_id, model, NULL::INT AS prediction, p.answer,
    coalesce(p.answer = d.gold, false) AS correct, p.confidence
FROM answered AS p JOIN docs AS d USING (benchmark, task, doc_id);

-- stderr: over documents, as lm-eval's; NULL for a single document.
CREATE OR REPLACE VIEW accuracy AS
SELECT
    benchmark, task, model, count(*) AS n, avg(correct::INT) AS accuracy,
    stddev_samp(correct::INT) / sqrt(count(*)) AS stderr
FROM predictions
GROUP BY ALL;

-- A benchmark's documents pooled, beside the unweighted mean of its tasks.
CREATE OR REPLACE VIEW benchmark_accuracy AS
WITH by_task AS (
    SELECT benchmark, task, model, count(*) AS n, sum(correct::INT) AS n_right FROM predictions GROUP BY ALL
),
pooled AS (
    SELECT
        benchmark, model, sum(n)::BIGINT AS n, sum(n_right) / sum(n) AS accuracy,
        avg(n_right / n) AS mean_over_tasks, count(*) AS n_tasks
    FROM by_task
    GROUP BY ALL
)
SELECT
    benchmark, model, n, n_tasks, accuracy, sqrt(accuracy * (1 - accuracy) / nullif(n - 1, 0)) AS stderr,
    mean_over_tasks
FROM pooled;
