-- On which documents at least 1, 2, ... models do something, as bit strings, once one more model does it on those of `bits`.
CREATE OR REPLACE MACRO one_more(counted, bits) AS
    list_transform(
        list_append(counted, xor(bits, bits)),
        lambda c, k: c | (CASE WHEN k = 1 THEN bits ELSE counted[k - 1] & bits END)
    );

-- Where a wrong answer has more votes than the right one, or as many and wins the tie.
CREATE OR REPLACE MACRO beaten_by(votes, wrong, wins_tie, right_votes) AS
    list_reduce(
        list_transform(
            votes,
            lambda v, k: v & (
                (wrong & ~right_votes[k]) | (wins_tie & ~coalesce(right_votes[k + 1], xor(v, v)))
            )
        ),
        lambda x, y: x | y
    );

-- 1 - P(another member fails | this one fails), of one member's failures among how many of the pool fail.
CREATE OR REPLACE MACRO focal_term(failed, failures) AS
    1 - list_sum(list_transform(failures, lambda f, k: 2 * (k - 1) * bit_count(f & failed)))
        / nullif((len(failures) - 1) * list_sum(list_transform(failures, lambda f: bit_count(f & failed))), 0);

-- A pool with one more member, by rank. votes: for each member, how many say the same, of itself and those after it: an
-- answer's first member counts them all, and decides whether it wins a tie.
CREATE OR REPLACE MACRO grown(pool, rank, board) AS {
    members: list_append(pool.members, rank),
    answered: pool.answered & board.answered[rank],
    right_votes: warehouse.one_more(pool.right_votes, board.correct[rank]),
    failures: warehouse.one_more(pool.failures, board.wrong[rank]),
    votes: list_append(
        list_transform(pool.votes, lambda v, i: warehouse.one_more(v, board.same[pool.members[i]][rank])),
        [board.said[rank]]
    ),
    wins_tie: list_append(pool.wins_tie, board.behind[rank] | (board.ahead[rank] & ~pool.right_votes[1]))
};

-- Every pool of 2 to max_size models of a benchmark, or of `models`, each over the documents all its members answered.
-- Models answer as bit strings, one bit a document, so that a pool's counts are a few operations on them; and a pool
-- grows out of the one without its last member, whose counts it needs.
CREATE OR REPLACE MACRO all_pools(benchmark, max_size, task := '*', split := '*', models := '*', snapshot := 'now') AS TABLE
WITH RECURSIVE bits AS (
    FROM warehouse.model_bits(benchmark, models, task, split, snapshot)
),
same_pairs AS (
    FROM warehouse.same_answers(benchmark, models, task, split, snapshot)
),
same AS (
    SELECT a.model, list(coalesce(s.same, xor(a.said, a.said)) ORDER BY b.model) AS same
    FROM bits AS a CROSS JOIN bits AS b LEFT JOIN same_pairs AS s ON s.model_a = a.model AND s.model_b = b.model
    GROUP BY a.model
),
-- All models in one row, by rank: joins would copy their bit strings for every pool.
board AS (
    SELECT
        list(b.model ORDER BY b.model) AS names, list(b.answered ORDER BY b.model) AS answered,
        list(b.correct ORDER BY b.model) AS correct, list(b.wrong ORDER BY b.model) AS wrong,
        list(b.said ORDER BY b.model) AS said, list(s.same ORDER BY b.model) AS same,
        list(b.ahead ORDER BY b.model) AS ahead, list(b.behind ORDER BY b.model) AS behind
    FROM bits AS b JOIN same AS s USING (model)
),
ranks AS (
    SELECT unnest(range(1, (SELECT count(*) FROM bits) + 1))::INT AS rank
),
-- Those that larger ones grow from. The largest are many, and not kept: they are judged as they come.
smaller AS (
    SELECT {
        members: [r.rank], answered: b.answered[r.rank], right_votes: [b.correct[r.rank]], failures: [b.wrong[r.rank]],
        votes: [[b.said[r.rank]]], wins_tie: [b.ahead[r.rank]]
    } AS pool
    FROM ranks AS r, board AS b
    UNION ALL
    SELECT warehouse.grown(s.pool, r.rank, b)
    FROM smaller AS s JOIN ranks AS r ON r.rank > s.pool.members[-1], board AS b
    WHERE len(s.pool.members) < max_size - 1
),
pools AS (
    SELECT unnest(warehouse.grown(s.pool, r.rank, b))
    FROM smaller AS s JOIN ranks AS r ON r.rank > s.pool.members[-1], board AS b
    WHERE max_size >= 2
),
judged AS (
    SELECT
        list_transform(p.members, lambda m: b.names[m]) AS models, len(p.members) AS size,
        list_avg(list_transform(
            p.members, lambda m: warehouse.focal_term(b.wrong[m] & p.answered, p.failures)
        )) AS focal_diversity,
        bit_count(p.answered) AS n, p.answered & p.right_votes[1] AS any_right,
        list_reduce(list_transform(
            p.votes, lambda v, i: warehouse.beaten_by(v, b.wrong[p.members[i]], p.wins_tie[i], p.right_votes)
        ), lambda x, y: x | y) AS beaten
    FROM pools AS p, board AS b
)
SELECT
    j.models, j.size, j.focal_diversity, bit_count(j.any_right & ~j.beaten) / nullif(j.n, 0) AS plurality_accuracy,
    bit_count(j.any_right) / nullif(j.n, 0) AS oracle_accuracy
FROM judged AS j
UNION ALL
SELECT error('all_pools: max_size must be at least 1')::VARCHAR[], NULL, NULL, NULL, NULL
WHERE coalesce(max_size, 0) < 1
ORDER BY 2, 1;
