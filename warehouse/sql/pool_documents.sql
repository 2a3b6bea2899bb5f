-- How one pool does on every document that all its members answered: what its statistics are sums of. A member is a number,
-- its alphabetical rank from 0.
CREATE OR REPLACE MACRO pool_documents(of_benchmark, of_models, of_task, of_split, of_snapshot := 'now') AS TABLE
WITH ballots AS (
    SELECT
        a.task, a.doc_id, a.prediction, a.answer, a.correct, count(*) AS votes,
        list(list_position(list_sort(list_distinct(warehouse.name_list(of_models))), a.model) - 1) AS voters
    FROM warehouse.numbered_answers(of_benchmark, warehouse.each_named(of_models), of_task, of_split, of_snapshot) AS a
    GROUP BY ALL
)
SELECT
    b.task, b.doc_id, sum(b.votes)::BIGINT AS size,
    coalesce(sum(b.votes) FILTER (NOT b.correct), 0)::BIGINT AS k,              -- members that fail
    coalesce(list_sort(flatten(list(b.voters) FILTER (NOT b.correct))), []) AS failed,  -- which
    sum(b.votes * b.votes)::BIGINT AS agreement,                                -- ordered pairs that agree, and selves
    list_sort(list({category: coalesce(b.prediction::VARCHAR, b.answer), votes: b.votes})) AS votes,
    coalesce(
        first(b.correct ORDER BY b.votes DESC, b.prediction, list_min(b.voters))
            FILTER (b.prediction IS NOT NULL OR b.answer IS NOT NULL),
        false
    ) AS plurality_right
FROM ballots AS b
GROUP BY b.task, b.doc_id
HAVING sum(b.votes) = len(list_distinct(warehouse.name_list(of_models)));
