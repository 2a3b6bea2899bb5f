-- On which documents at least 1, 2, ... models do something, once one more model does it on those of `words`.
CREATE OR REPLACE MACRO one_more(counted, words) AS
    list_transform(
        list_zip(list_append(counted, warehouse.words_xor(words, words)), list_prepend(words, counted)),
        lambda z: warehouse.words_or_and(z[1], z[2], words)
    );

-- Where a wrong answer beats 1, 2, ... right votes, once one more wrong answer has at least 1, 2, ... votes, and wins ties
-- on some documents.
CREATE OR REPLACE MACRO beaten_also(beaten, votes, wins_tie) AS
    list_transform(
        list_zip(
            list_append(beaten, warehouse.words_xor(wins_tie, wins_tie)), votes,
            list_append(votes[2:], warehouse.words_xor(wins_tie, wins_tie))
        ),
        lambda z: warehouse.words_or_and(warehouse.words_or_and(z[1], z[3], z[3]), z[2], wins_tie)
    );

-- A pool of one more member on one block: `model` is a row of `joiners` in all_pools. place: the pool's, among those of its
-- size. votes: where at least 1, 2, ... members say what the newest one says, if that is wrong; wins_tie: and win a tie with
-- the right answer. beaten: where an answer of the earlier members beats 1, 2, ... right votes.
CREATE OR REPLACE MACRO grown(pool, beaten, model) AS {
    members: list_append(pool.members, model.rank),
    place: pool.place + model.places[len(pool.members) + 1],
    block: pool.block,
    answered: warehouse.words_and(pool.answered, model.answered),
    any_right: warehouse.words_or_and(pool.any_right, model.correct, model.correct),
    right_votes: warehouse.one_more(pool.right_votes, model.correct),
    beaten: beaten,
    votes: list_reduce(
        list_transform(list_select(model.echoes, pool.members), lambda words: [words]),
        lambda counted, echo: warehouse.one_more(counted, echo[1]), [model.misled]
    ),
    own_ties: list_append(pool.own_ties, warehouse.words_or_and_not(model.behind, model.ahead, pool.any_right)),
    wins_tie: list_reduce(
        list_transform(
            list_zip(list_select(model.echoes, pool.members), pool.own_ties), lambda z: warehouse.words_and(z[1], z[2])
        ),
        lambda x, y: warehouse.words_or_and(x, y, y), warehouse.words_or_and_not(model.behind, model.ahead, pool.any_right)
    )
};

-- On which documents the plurality of a pool is right.
CREATE OR REPLACE MACRO plurality_right(right_votes, beaten) AS
    list_reduce(
        list_transform(
            list_zip(beaten, list_append(right_votes[2:], warehouse.words_xor(right_votes[1], right_votes[1]))),
            lambda z: warehouse.words_and_not(z[1], z[2])
        ),
        lambda x, lost: warehouse.words_and_not(x, lost),
        right_votes[1]
    );

-- Every pool of 2 to max_size models of a benchmark, or of `models`, each over the documents all its members answered.
-- Pools of two and three follow from how many documents two or three models get wrong together, if all models answered all
-- documents. Other pools grow by one model at a time, and keep on which documents how many members are right.
CREATE OR REPLACE MACRO all_pools(benchmark, max_size, task := '*', split := '*', models := '*', snapshot := 'now') AS TABLE
WITH RECURSIVE words AS (
    FROM warehouse.model_words(benchmark, models, task, split, snapshot)
),
names AS (
    SELECT list(w.model ORDER BY w.rank) AS names FROM words AS w WHERE w.block = 0
),
-- The least size of pools that grow.
growing AS (
    SELECT CASE WHEN bool_or(b.n_answered > 1) THEN 2 ELSE 4 END AS least_size, sum(b.n) AS n
    FROM (
        SELECT count(DISTINCT w.answered) AS n_answered, any_value(warehouse.n_common(w.answered, w.answered)) AS n
        FROM words AS w GROUP BY w.block
    ) AS b
),
-- Two models on a block. The third, where it alone is right, wins: if it comes last (last), between them, or first.
same_words AS (
    SELECT
        a.rank AS a, b.rank AS b, a.block, warehouse.words_same(a, b) AS same, a.wrong AS wrong_a, b.wrong AS wrong_b,
        a.correct AS correct_a, b.correct AS correct_b, a.ahead AS ahead_a, b.ahead AS ahead_b, a.behind AS behind_a,
        b.behind AS behind_b, warehouse.words_and(a.wrong, b.wrong) AS wrong
    FROM words AS a JOIN words AS b ON a.block = b.block AND a.rank < b.rank
    WHERE max_size >= 2
),
apart_words AS (
    SELECT s.*, warehouse.words_and_not(s.wrong, s.same) AS apart FROM same_words AS s, growing AS g WHERE g.least_size > 2
),
ahead_words AS (
    SELECT
        p.*, warehouse.words_and_not(p.apart, p.ahead_a) AS not_ahead, warehouse.words_and_not(p.apart, p.behind_a) AS not_behind
    FROM apart_words AS p
),
duo_words AS (
    SELECT
        p.a, p.b, p.block, p.wrong, warehouse.words_and_not(p.not_ahead, p.ahead_b) AS third_last,
        warehouse.words_and_not(p.not_ahead, p.behind_b) AS third_between,
        warehouse.words_and_not(p.not_behind, p.behind_b) AS third_first,
        warehouse.n_common(p.correct_a, p.correct_b)
            + warehouse.n_common(p.correct_a, warehouse.words_and_not(p.wrong_b, p.behind_b))
            + warehouse.n_common(p.correct_b, warehouse.words_and_not(p.wrong_a, p.ahead_a)) AS n_right,
        warehouse.n_common(p.wrong, p.wrong) AS n_wrong
    FROM ahead_words AS p
),
alone AS (
    SELECT w.rank, sum(warehouse.n_common(w.wrong, w.wrong)) AS n_wrong FROM words AS w GROUP BY w.rank
),
duos AS (
    SELECT p.a, p.b, sum(p.n_right) AS n_right, sum(p.n_wrong) AS n_wrong FROM duo_words AS p GROUP BY p.a, p.b
),
thirds AS (
    SELECT p.a, p.b, w.rank AS c, warehouse.n_common(p.wrong, w.wrong) AS n_wrong, warehouse.n_common(p.third_last, w.correct) AS n_right
    FROM duo_words AS p JOIN words AS w ON w.block = p.block AND w.rank > p.b
    WHERE max_size >= 3
    UNION ALL
    SELECT p.a, w.rank, p.b, 0, warehouse.n_common(p.third_between, w.correct)
    FROM duo_words AS p JOIN words AS w ON w.block = p.block AND w.rank > p.a AND w.rank < p.b
    WHERE max_size >= 3
    UNION ALL
    SELECT w.rank, p.a, p.b, 0, warehouse.n_common(p.third_first, w.correct)
    FROM duo_words AS p JOIN words AS w ON w.block = p.block AND w.rank < p.a
    WHERE max_size >= 3
),
trios AS (
    SELECT t.a, t.b, t.c, sum(t.n_wrong) AS n_wrong, sum(t.n_right) AS n_right_alone FROM thirds AS t GROUP BY t.a, t.b, t.c
),
-- What a pool on a block needs to know of a model that joins it: echoes, where earlier ones say the same wrong answer.
joiners AS (
    SELECT
        w.rank, w.block, any_value(w.answered) AS answered, any_value(w.correct) AS correct, any_value(w.wrong) AS wrong,
        any_value(w.ahead) AS ahead, any_value(w.behind) AS behind, any_value(warehouse.words_and(w.wrong, w.said)) AS misled,
        coalesce(list(warehouse.words_and(s.same, s.wrong) ORDER BY s.a) FILTER (s.a IS NOT NULL), []) AS echoes,
        coalesce(list(s.wrong_a ORDER BY s.a) FILTER (s.a IS NOT NULL), []) AS wrongs,
        list_transform(range(1, max_size + 1), lambda k: list_reduce(
            list_transform(range(k), lambda i: (i + 1)::HUGEINT), lambda c, i: c * (any_value(w.rank) - i) // i, 1::HUGEINT
        )) AS places
    FROM words AS w LEFT JOIN same_words AS s ON s.b = w.rank AND s.block = w.block, growing AS g
    WHERE max_size >= g.least_size
    GROUP BY w.rank, w.block
),
-- Pools that larger ones grow from. The largest are many, and not kept: they are judged as they come.
smaller AS (
    SELECT {
        members: [j.rank], place: j.places[1], block: j.block, answered: j.answered, any_right: j.correct,
        right_votes: [j.correct], beaten: [j.misled][2:], votes: [j.misled],
        own_ties: [warehouse.words_or_and(j.behind, j.ahead, j.ahead)],
        wins_tie: warehouse.words_or_and(j.behind, j.ahead, j.ahead)
    } AS pool
    FROM joiners AS j
    UNION ALL
    SELECT warehouse.grown(s.pool, s.beaten, j)
    FROM (SELECT s.pool, warehouse.beaten_also(s.pool.beaten, s.pool.votes, s.pool.wins_tie) AS beaten FROM smaller AS s) AS s
    JOIN joiners AS j ON j.block = s.pool.block AND j.rank > s.pool.members[-1]
    WHERE len(s.pool.members) < max_size - 1
),
grown_pools AS (
    SELECT warehouse.grown(s.pool, s.beaten, j) AS pool, j.wrongs, j.wrong, len(s.pool.members) + 1 AS size
    FROM (SELECT s.pool, warehouse.beaten_also(s.pool.beaten, s.pool.votes, s.pool.wins_tie) AS beaten FROM smaller AS s) AS s
    JOIN joiners AS j ON j.block = s.pool.block AND j.rank > s.pool.members[-1], growing AS g
    WHERE len(s.pool.members) + 1 >= g.least_size
),
voted AS (
    SELECT
        p.pool.members, p.size, p.pool.place, p.pool.answered, p.pool.any_right, p.pool.right_votes,
        warehouse.plurality_right(
            p.pool.right_votes, warehouse.beaten_also(p.pool.beaten, p.pool.votes, p.pool.wins_tie)
        ) AS is_right,
        list_append(list_select(p.wrongs, p.pool.members[:-2]), p.wrong) AS wrongs
    FROM grown_pools AS p
),
-- One row for each member of a pool and block.
failing AS (
    SELECT
        v.members, v.size, v.place, v.right_votes, warehouse.n_common(v.answered, v.answered) AS n,
        warehouse.n_common(v.answered, v.any_right) AS n_any_right, warehouse.n_common(v.answered, v.is_right) AS n_right,
        generate_subscripts(v.members, 1) AS member, v.answered, unnest(v.wrongs) AS wrong
    FROM voted AS v
),
common AS (
    SELECT f.* EXCLUDE (answered), warehouse.words_and(f.answered, f.wrong) AS failed FROM failing AS f
),
counted AS (
    SELECT
        c.members, c.size, c.place, c.member, c.n, c.n_any_right, c.n_right, warehouse.n_common(c.failed, c.failed) AS n_failed,
        list_transform(c.right_votes, lambda v: warehouse.n_common(c.failed, v)) AS n_right_beside
    FROM common AS c
),
-- failures: over the documents that the member fails, how many of the pool fail; pairs: how many ordered pairs of them.
per_member AS (
    SELECT
        any_value(c.members) AS members, c.size, c.place, sum(c.n) AS n, sum(c.n_any_right) AS n_any_right, sum(c.n_right) AS n_right,
        sum(c.size * c.n_failed - list_sum(c.n_right_beside)) AS failures,
        sum(c.size * (c.size - 1) * c.n_failed - list_sum(list_transform(c.n_right_beside, lambda x, k: 2 * (c.size - k) * x))) AS pairs
    FROM counted AS c
    GROUP BY c.size, c.place, c.member
),
judged AS (
    SELECT
        any_value(m.members) AS members, m.size, any_value(m.n) AS n, any_value(m.n_any_right) AS n_any_right,
        any_value(m.n_right) AS n_right, avg(1 - m.pairs / nullif((m.size - 1) * m.failures, 0)) AS focal_diversity
    FROM per_member AS m
    GROUP BY m.size, m.place
)
SELECT [n.names[d.a], n.names[d.b]] AS models, 2 AS size,
    list_avg([1 - 2 * d.n_wrong / nullif(a.n_wrong + d.n_wrong, 0), 1 - 2 * d.n_wrong / nullif(b.n_wrong + d.n_wrong, 0)]) AS focal_diversity,
    d.n_right / nullif(g.n, 0) AS plurality_accuracy, 1 - d.n_wrong / nullif(g.n, 0) AS oracle_accuracy
FROM duos AS d JOIN alone AS a ON a.rank = d.a JOIN alone AS b ON b.rank = d.b, growing AS g, names AS n
UNION ALL
SELECT [n.names[t.a], n.names[t.b], n.names[t.c]], 3,
    list_avg([
        1 - (ab.n_wrong + ac.n_wrong + t.n_wrong) / nullif(a.n_wrong + ab.n_wrong + ac.n_wrong, 0),
        1 - (ab.n_wrong + bc.n_wrong + t.n_wrong) / nullif(b.n_wrong + ab.n_wrong + bc.n_wrong, 0),
        1 - (ac.n_wrong + bc.n_wrong + t.n_wrong) / nullif(c.n_wrong + ac.n_wrong + bc.n_wrong, 0)
    ]),
    (g.n - ab.n_wrong - ac.n_wrong - bc.n_wrong + 2 * t.n_wrong + t.n_right_alone) / nullif(g.n, 0),
    1 - t.n_wrong / nullif(g.n, 0)
FROM trios AS t JOIN duos AS ab ON ab.a = t.a AND ab.b = t.b JOIN duos AS ac ON ac.a = t.a AND ac.b = t.c
JOIN duos AS bc ON bc.a = t.b AND bc.b = t.c JOIN alone AS a ON a.rank = t.a JOIN alone AS b ON b.rank = t.b
JOIN alone AS c ON c.rank = t.c, growing AS g, names AS n
UNION ALL
SELECT list_transform(j.members, lambda m: n.names[m]), j.size, j.focal_diversity, j.n_right / nullif(j.n, 0), j.n_any_right / nullif(j.n, 0)
FROM judged AS j, names AS n
UNION ALL
SELECT error('all_pools: max_size must be at least 1')::VARCHAR[], NULL, NULL, NULL, NULL
WHERE coalesce(max_size, 0) < 1
ORDER BY 2, 1;
