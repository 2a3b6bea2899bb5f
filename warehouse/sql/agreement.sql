-- How often two models give the same answer, right or wrong, over the documents both answered. Giving no answer agrees
-- with nothing. same_error: of the documents both get wrong, the share that they get wrong in the same way.
CREATE OR REPLACE MACRO agreement(benchmark, task := '*', split := '*') AS TABLE
WITH answered AS (
    SELECT
        o.task AS of_task, o.doc_id, o.model, o.correct, coalesce(o.prediction::VARCHAR, o.answer) AS said
    FROM outcomes AS o
    WHERE o.benchmark = benchmark AND (task = '*' OR o.task = task) AND (split = '*' OR o.split = split)
),
counted AS (
    SELECT
        a.model AS model_a, b.model AS model_b, count(*) AS n,
        count(*) FILTER (a.said = b.said) AS same,
        count(*) FILTER (a.correct AND b.correct) AS both_right,
        count(*) FILTER (NOT a.correct AND NOT b.correct) AS both_wrong
    FROM answered AS a JOIN answered AS b USING (of_task, doc_id)
    WHERE a.model < b.model
    GROUP BY ALL
)
SELECT
    c.model_a, c.model_b, c.n, c.same / c.n AS agreement,
    (c.same - c.both_right) / nullif(c.both_wrong, 0) AS same_error
FROM counted AS c
UNION ALL
SELECT error('agreement: nobody answered ' || concat(benchmark, '/' || nullif(task, '*'), ', split ' || nullif(split, '*'))), NULL, NULL, NULL, NULL
WHERE NOT EXISTS (FROM answered)
ORDER BY model_a, model_b;

-- What all models of a benchmark together say to each document: the plurality's choice or answer, how many models say
-- it, and whether it is right. Ties: the lowest choice; among answers, the one of the alphabetically first model.
CREATE OR REPLACE VIEW consensus AS
WITH ballots AS (
    SELECT
        o.benchmark, o.task, o.doc_id, o.split, o.prediction, o.answer, o.correct, count(*) AS votes,
        min(o.model) AS first_voter
    FROM outcomes AS o
    GROUP BY ALL
),
counted AS (
    SELECT
        b.benchmark, b.task, b.doc_id, b.split, sum(b.votes)::BIGINT AS n_models,
        coalesce(sum(b.votes) FILTER (b.correct), 0)::BIGINT AS n_right,
        first(
            {prediction: b.prediction, answer: b.answer, votes: b.votes, correct: b.correct}
            ORDER BY b.votes DESC, b.prediction, b.first_voter
        ) FILTER (b.prediction IS NOT NULL OR b.answer IS NOT NULL) AS plurality
    FROM ballots AS b
    GROUP BY ALL
)
SELECT
    c.benchmark, c.task, c.doc_id, c.split, c.n_models, c.n_right,
    c.plurality.prediction AS prediction, c.plurality.answer AS answer,
    coalesce(c.plurality.votes, 0) AS n_agree, coalesce(c.plurality.correct, false) AS correct
FROM counted AS c;
