-- How one pool does on every document that all its members answered: what its statistics are sums of.
-- A member is a bit by its alphabetical rank, so a pool has at most 126. An unknown model is an error.
-- The parameters have names of their own, because a macro's parameter hides a column of its name.
CREATE OR REPLACE MACRO pool_documents(of_benchmark, of_models, of_task, of_split) AS TABLE
-- The first aggregation is over documents × members × choices. `outcomes`, whose tie rules these are, would join docs
-- and keep every name with each of its groups; here groups have small numbers, and scans skip files of other models.
WITH members AS (
    SELECT m.model, (row_number() OVER (ORDER BY m.model) - 1)::TINYINT AS rank
    FROM (SELECT DISTINCT unnest(of_models) AS model) AS m
    WHERE CASE
        WHEN of_split NOT IN ('*', 'train', 'test') THEN error('split ' || of_split || ' is neither train nor test')
        WHEN m.model IS NULL OR NOT EXISTS (
            FROM extractions AS e WHERE e.benchmark = of_benchmark AND e.model = m.model
        ) THEN error(concat('nothing of model ', coalesce(m.model, 'NULL'), ' on benchmark ', of_benchmark))
        WHEN of_task <> '*' AND of_task NOT IN (SELECT d.task FROM docs AS d WHERE d.benchmark = of_benchmark)
            THEN error('no task ' || of_task || ' in benchmark ' || of_benchmark)
        ELSE true
    END
),
tasks AS (
    SELECT t.task, row_number() OVER ()::INT AS number
    FROM (SELECT DISTINCT d.task FROM docs AS d WHERE d.benchmark = of_benchmark AND of_task IN ('*', d.task)) AS t
),
chosen AS (
    SELECT
        t.number AS of_task_number, c.doc_id, m.rank,
        arg_max(c.choice, {l: c.logprob, first: -c.choice}) AS prediction
    FROM choice_logprobs AS c JOIN members AS m USING (model) JOIN tasks AS t USING (task)
    WHERE c.benchmark = of_benchmark
    GROUP BY ALL
    HAVING bool_and(coalesce(isfinite(c.logprob) AND coalesce(c.logprob <= 1e-6 * c.n_tokens, true), false))
),
given AS (
    SELECT t.number AS of_task_number, p.doc_id, m.rank, p.answer, count(*) AS passes, min(p.pass) AS earliest
    FROM answer_passes AS p JOIN members AS m USING (model) JOIN tasks AS t USING (task)
    WHERE p.benchmark = of_benchmark
    GROUP BY ALL
),
answered AS (
    SELECT
        g.of_task_number, g.doc_id, g.rank,
        arg_max(g.answer, {n: g.passes, first: -g.earliest}) FILTER (g.answer IS NOT NULL) AS answer
    FROM given AS g
    GROUP BY ALL
),
ballots AS (
    SELECT
        c.of_task_number, c.doc_id, c.prediction, NULL::VARCHAR AS answer, count(*) AS votes,
        min(c.rank) AS first_voter, sum(1::HUGEINT << c.rank)::HUGEINT AS voters
    FROM chosen AS c
    GROUP BY ALL
    UNION ALL
    SELECT
        a.of_task_number, a.doc_id, NULL::INT AS prediction, a.answer, count(*) AS votes,
        min(a.rank) AS first_voter, sum(1::HUGEINT << a.rank)::HUGEINT AS voters
    FROM answered AS a
    GROUP BY ALL
),
judged AS (
    SELECT
        d.task, d.doc_id, b.prediction, b.answer, b.votes, b.first_voter, b.voters,
        coalesce(b.prediction = d.label, b.answer = d.gold, false) AS correct
    FROM ballots AS b
    JOIN tasks AS t ON t.number = b.of_task_number
    JOIN docs AS d ON d.benchmark = of_benchmark AND d.task = t.task AND d.doc_id = b.doc_id
    WHERE of_split IN ('*', d.split)
)
SELECT
    j.task, j.doc_id, sum(j.votes)::BIGINT AS size,
    coalesce(sum(j.votes) FILTER (NOT j.correct), 0)::BIGINT AS k,              -- members that fail
    coalesce(sum(j.voters) FILTER (NOT j.correct), 0)::HUGEINT AS failed,       -- which
    sum(j.votes * j.votes)::BIGINT AS agreement,                                -- ordered pairs that agree, and selves
    list({category: coalesce(j.prediction::VARCHAR, j.answer), votes: j.votes}) AS votes,
    coalesce(
        arg_max(j.correct, j.votes * 1048576 - coalesce(j.prediction, j.first_voter))
            FILTER (j.prediction IS NOT NULL OR j.answer IS NOT NULL),
        false
    ) AS plurality_right
FROM judged AS j
GROUP BY j.task, j.doc_id
HAVING sum(j.votes) = (SELECT count(*) FROM members);
