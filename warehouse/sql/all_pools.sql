-- Of how many of the given bit strings at least 1, 2, ... have a bit, for each bit.
CREATE OR REPLACE MACRO at_least(bits) AS
    list_reduce(
        list_transform(bits, lambda b: [b]),
        lambda counted, b: list_transform(
            counted, lambda c, i: c | (CASE WHEN i = 1 THEN b[1] ELSE counted[i - 1] & b[1] END)
        ),
        list_transform(bits, lambda b: xor(b, b))
    );

-- Every pool of 2 to max_size models of a benchmark, or of `models`, each over the documents all its members answered.
-- Models answer as bit strings, one bit a document. Pools of two and three follow from counting bits; larger ones from how
-- many members at least are right, and say the same, on each document.
CREATE OR REPLACE MACRO all_pools(benchmark, max_size, task := '*', split := '*', models := '*', snapshot := 'now') AS TABLE
WITH RECURSIVE bits AS (
    FROM warehouse.model_bits(benchmark, models, task, split, snapshot)
),
same AS (
    FROM warehouse.same_answers(benchmark, models, task, split, snapshot)
),
gaps AS (
    SELECT count(DISTINCT answered) > 1 AS any FROM bits
),
-- apart_1, apart_2, apart_3: both are wrong, and together with a third who is right they let it win, if that one comes
-- after both by name, between them, or before both.
paired AS (
    SELECT
        a.model AS model_a, b.model AS model_b, a.answered & b.answered AS answered, a.wrong & b.wrong AS wrong,
        ~coalesce(s.same, xor(a.wrong, a.wrong)) & a.wrong & b.wrong AS apart,
        a.ahead AS ahead_a, b.ahead AS ahead_b, a.behind AS behind_a, b.behind AS behind_b,
        bit_count(a.wrong & b.answered) AS wrong_a, bit_count(a.answered & b.wrong) AS wrong_b,
        bit_count(a.correct & b.correct) + bit_count(a.correct & b.wrong & ~b.behind)
            + bit_count(a.wrong & b.correct & ~a.ahead) AS n_right
    FROM bits AS a JOIN bits AS b ON a.model < b.model
    LEFT JOIN same AS s ON s.model_a = a.model AND s.model_b = b.model
    WHERE max_size >= 2
),
duos AS (
    SELECT
        p.model_a, p.model_b, p.answered, p.wrong, p.apart & ~p.ahead_a & ~p.ahead_b AS apart_1,
        p.apart & ~p.ahead_a & ~p.behind_b AS apart_2, p.apart & ~p.behind_a & ~p.behind_b AS apart_3,
        bit_count(p.answered) AS n, p.wrong_a, p.wrong_b, bit_count(p.wrong) AS both_wrong, p.n_right
    FROM paired AS p
),
-- All bit strings in one row, by the models' order: joins of three models would copy them for every pool.
ranks AS (
    SELECT unnest(range(1, (SELECT count(*) FROM bits) + 1))::INT AS rank
),
board AS (
    SELECT
        list(b.model ORDER BY b.model) AS names, list(b.answered ORDER BY b.model) AS answered,
        list(b.correct ORDER BY b.model) AS correct, list(b.wrong ORDER BY b.model) AS wrong,
        list(b.ahead ORDER BY b.model) AS ahead, list(b.behind ORDER BY b.model) AS behind
    FROM bits AS b
    WHERE max_size >= 3
),
duo_board AS (
    SELECT
        list(d.answered ORDER BY d.model_a, d.model_b) AS answered, list(d.wrong ORDER BY d.model_a, d.model_b) AS wrong,
        list(d.apart_1 ORDER BY d.model_a, d.model_b) AS apart_1, list(d.apart_2 ORDER BY d.model_a, d.model_b) AS apart_2,
        list(d.apart_3 ORDER BY d.model_a, d.model_b) AS apart_3, list(d.n ORDER BY d.model_a, d.model_b) AS n,
        list(d.wrong_a ORDER BY d.model_a, d.model_b) AS wrong_a, list(d.wrong_b ORDER BY d.model_a, d.model_b) AS wrong_b,
        list(d.both_wrong ORDER BY d.model_a, d.model_b) AS both_wrong
    FROM duos AS d
    WHERE max_size >= 3
),
-- Three models by rank, and their pairs by place in duo_board.
places AS (
    SELECT a.rank AS a, b.rank AS b, row_number() OVER (ORDER BY a.rank, b.rank) AS place
    FROM ranks AS a JOIN ranks AS b ON a.rank < b.rank
    WHERE max_size >= 3
),
threes AS (
    SELECT ab.a, ab.b, ac.b AS c, ab.place AS ab, ac.place AS ac, bc.place AS bc
    FROM places AS ab
    JOIN places AS ac ON ac.a = ab.a AND ac.b > ab.b
    JOIN places AS bc ON bc.a = ab.b AND bc.b = ac.b
),
-- Without gaps, the counts of fewer than three members are those of the duos.
trios AS (
    SELECT
        m.names[t.a] AS model_a, m.names[t.b] AS model_b, m.names[t.c] AS model_c,
        CASE WHEN g.any THEN bit_count(d.answered[t.ab] & m.answered[t.c]) ELSE d.n[t.ab] END AS n,
        CASE WHEN g.any THEN bit_count(d.answered[t.bc] & m.wrong[t.a]) ELSE d.wrong_a[t.ab] END AS wrong_a,
        CASE WHEN g.any THEN bit_count(d.answered[t.ac] & m.wrong[t.b]) ELSE d.wrong_b[t.ab] END AS wrong_b,
        CASE WHEN g.any THEN bit_count(d.answered[t.ab] & m.wrong[t.c]) ELSE d.wrong_b[t.ac] END AS wrong_c,
        CASE WHEN g.any THEN bit_count(d.wrong[t.ab] & m.answered[t.c]) ELSE d.both_wrong[t.ab] END AS wrong_ab,
        CASE WHEN g.any THEN bit_count(d.wrong[t.ac] & m.answered[t.b]) ELSE d.both_wrong[t.ac] END AS wrong_ac,
        CASE WHEN g.any THEN bit_count(d.wrong[t.bc] & m.answered[t.a]) ELSE d.both_wrong[t.bc] END AS wrong_bc,
        bit_count(d.wrong[t.ab] & m.wrong[t.c]) AS all_wrong,
        bit_count(d.apart_1[t.ab] & m.correct[t.c]) + bit_count(d.apart_2[t.ac] & m.correct[t.b])
            + bit_count(d.apart_3[t.bc] & m.correct[t.a]) AS right_alone
    FROM threes AS t, duo_board AS d, board AS m, gaps AS g
),
-- Larger pools: on which documents any two models say the same, one included twice.
every_same AS (
    SELECT
        a.model, list(
            CASE WHEN a.model = b.model THEN a.said ELSE coalesce(s.same, xor(a.said, a.said)) END ORDER BY b.model
        ) AS same
    FROM bits AS a CROSS JOIN bits AS b
    LEFT JOIN same AS s ON s.model_a = least(a.model, b.model) AND s.model_b = greatest(a.model, b.model)
    WHERE max_size > 3
    GROUP BY a.model
),
same_board AS (
    SELECT list(e.same ORDER BY e.model) AS same FROM every_same AS e
),
larger AS (
    SELECT [r.rank] AS members FROM ranks AS r WHERE max_size > 3
    UNION ALL
    SELECT list_append(l.members, r.rank) FROM larger AS l JOIN ranks AS r ON r.rank > l.members[-1]
    WHERE len(l.members) < max_size
),
counted AS (
    SELECT
        l.members, list_reduce(list_transform(l.members, lambda m: b.answered[m]), lambda x, y: x & y) AS answered,
        warehouse.at_least(list_transform(l.members, lambda m: b.correct[m])) AS right_votes,
        warehouse.at_least(list_transform(l.members, lambda m: b.wrong[m])) AS failures
    FROM larger AS l, board AS b
    WHERE len(l.members) > 3
),
-- One row for each member of a pool: where what it says beats the right answer, and how often it fails with others.
contested AS (
    SELECT
        c.members, c.answered, c.right_votes, u.rank, b.wrong[u.rank] AS wrong,
        warehouse.at_least(list_transform(c.members, lambda m: s.same[u.rank][m])) AS votes,
        b.behind[u.rank] | (b.ahead[u.rank] & ~list_reduce(list_transform(
            c.members, lambda m: CASE WHEN m < u.rank THEN b.correct[m] ELSE xor(c.answered, c.answered) END
        ), lambda x, y: x | y)) AS wins_tie,
        list_sum(list_transform(c.failures, lambda f: bit_count(f & b.wrong[u.rank] & c.answered))) AS once,
        list_sum(list_transform(
            c.failures, lambda f, k: 2 * (k - 1) * bit_count(f & b.wrong[u.rank] & c.answered)
        )) AS twice
    FROM counted AS c, board AS b, same_board AS s, unnest(c.members) AS u(rank)
),
decided AS (
    SELECT
        c.members, any_value(c.answered) AS answered, any_value(c.right_votes[1]) AS any_right,
        bit_or(list_reduce(list_transform(
            c.votes,
            lambda v, k: v & (
                (c.wrong & ~c.right_votes[k]) | (c.wins_tie & ~coalesce(c.right_votes[k + 1], xor(v, v)))
            )
        ), lambda x, y: x | y)) AS beaten,
        avg(1 - c.twice / nullif((len(c.members) - 1) * c.once, 0)) AS focal_diversity
    FROM contested AS c
    GROUP BY c.members
)
SELECT
    [d.model_a, d.model_b] AS models, 2 AS size,
    list_avg([
        1 - 2 * d.both_wrong / nullif(d.wrong_a + d.both_wrong, 0),
        1 - 2 * d.both_wrong / nullif(d.wrong_b + d.both_wrong, 0)
    ]) AS focal_diversity,
    d.n_right / nullif(d.n, 0) AS plurality_accuracy, 1 - d.both_wrong / nullif(d.n, 0) AS oracle_accuracy
FROM duos AS d
UNION ALL
SELECT
    [t.model_a, t.model_b, t.model_c], 3,
    list_avg([
        1 - (t.wrong_ab + t.wrong_ac + t.all_wrong) / nullif(t.wrong_a + t.wrong_ab + t.wrong_ac, 0),
        1 - (t.wrong_ab + t.wrong_bc + t.all_wrong) / nullif(t.wrong_b + t.wrong_ab + t.wrong_bc, 0),
        1 - (t.wrong_ac + t.wrong_bc + t.all_wrong) / nullif(t.wrong_c + t.wrong_ac + t.wrong_bc, 0)
    ]),
    (t.n - t.wrong_ab - t.wrong_ac - t.wrong_bc + 2 * t.all_wrong + t.right_alone) / nullif(t.n, 0),
    1 - t.all_wrong / nullif(t.n, 0)
FROM trios AS t
UNION ALL
SELECT
    list_transform(d.members, lambda m: b.names[m]), len(d.members), d.focal_diversity,
    bit_count(d.any_right & d.answered & ~d.beaten) / nullif(bit_count(d.answered), 0),
    bit_count(d.any_right & d.answered) / nullif(bit_count(d.answered), 0)
FROM decided AS d, board AS b
UNION ALL
SELECT error('all_pools: max_size must be at least 1')::VARCHAR[], NULL, NULL, NULL, NULL
WHERE coalesce(max_size, 0) < 1
ORDER BY 2, 1;
