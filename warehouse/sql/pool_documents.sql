-- How one pool does on every document that all its members answered: what its statistics are sums of.
-- A member is a bit by its alphabetical rank, so a pool has at most 126. An unknown model is an error.
-- The parameters have names of their own, because a macro's parameter hides a column of its name.
CREATE OR REPLACE MACRO pool_documents(of_benchmark, of_models, of_task, of_split) AS TABLE
WITH answered AS (
    SELECT o.task, o.doc_id, o.model, o.prediction, o.answer, o.correct
    FROM outcomes AS o
    WHERE o.benchmark = of_benchmark AND (of_task = '*' OR o.task = of_task)
        AND (of_split = '*' OR o.split = of_split) AND list_contains(of_models, o.model)
),
members AS (
    SELECT m.model, (row_number() OVER (ORDER BY m.model) - 1)::INT AS rank
    FROM (SELECT DISTINCT unnest(of_models) AS model) AS m
),
pool AS (
    SELECT
        count(*) AS size,
        min(m.model) FILTER (
            m.model NOT IN (SELECT a.model FROM answered AS a)
            AND m.model NOT IN (SELECT e.model FROM extractions AS e WHERE e.benchmark = of_benchmark)
        ) AS unknown
    FROM members AS m
),
ballots AS (
    SELECT
        a.task, a.doc_id, a.prediction, a.answer, a.correct, count(*) AS votes, min(m.rank) AS first_voter,
        sum(1::HUGEINT << m.rank) AS voters
    FROM answered AS a JOIN members AS m USING (model)
    GROUP BY ALL
)
SELECT
    b.task, b.doc_id, any_value(p.size) AS size,
    coalesce(sum(b.votes) FILTER (NOT b.correct), 0)::BIGINT AS k,              -- members that fail
    coalesce(sum(b.voters) FILTER (NOT b.correct), 0)::HUGEINT AS failed,       -- which
    sum(b.votes * b.votes)::BIGINT AS agreement,                                -- ordered pairs that agree, and selves
    list({category: coalesce(b.prediction::VARCHAR, b.answer), votes: b.votes}) AS votes,
    coalesce(
        arg_max(b.correct, b.votes * 1048576 - coalesce(b.prediction, b.first_voter))
            FILTER (b.prediction IS NOT NULL OR b.answer IS NOT NULL),
        false
    ) AS plurality_right
FROM ballots AS b, pool AS p
WHERE CASE
    WHEN p.unknown IS NOT NULL THEN error('nothing of model ' || p.unknown || ' on benchmark ' || of_benchmark)
    ELSE true
END
GROUP BY b.task, b.doc_id
HAVING sum(b.votes) = any_value(p.size);
