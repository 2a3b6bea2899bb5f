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
