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
-- Without gaps, the counts of fewer than three members are those of the duos.
trios AS (
    SELECT
        ab.model_a, ab.model_b, c.model AS model_c,
        CASE WHEN g.any THEN bit_count(ab.answered & c.answered) ELSE ab.n END AS n,
        CASE WHEN g.any THEN bit_count(bc.answered & a.wrong) ELSE ab.wrong_a END AS wrong_a,
        CASE WHEN g.any THEN bit_count(ac.answered & b.wrong) ELSE ab.wrong_b END AS wrong_b,
        CASE WHEN g.any THEN bit_count(ab.answered & c.wrong) ELSE ac.wrong_b END AS wrong_c,
        CASE WHEN g.any THEN bit_count(ab.wrong & c.answered) ELSE ab.both_wrong END AS wrong_ab,
        CASE WHEN g.any THEN bit_count(ac.wrong & b.answered) ELSE ac.both_wrong END AS wrong_ac,
        CASE WHEN g.any THEN bit_count(bc.wrong & a.answered) ELSE bc.both_wrong END AS wrong_bc,
        bit_count(ab.wrong & c.wrong) AS all_wrong,
        bit_count(ab.apart_1 & c.correct) + bit_count(ac.apart_2 & b.correct) + bit_count(bc.apart_3 & a.correct)
            AS right_alone
    FROM duos AS ab
    JOIN duos AS ac ON ac.model_a = ab.model_a AND ac.model_b > ab.model_b
    JOIN duos AS bc ON bc.model_a = ab.model_b AND bc.model_b = ac.model_b
    JOIN bits AS a ON a.model = ab.model_a
    JOIN bits AS b ON b.model = ab.model_b
    JOIN bits AS c ON c.model = ac.model_b, gaps AS g
    WHERE max_size >= 3
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
-- All bit strings in one row, by the models' order.
board AS (
    SELECT
        list(b.model ORDER BY b.model) AS names, list(b.answered ORDER BY b.model) AS answered,
        list(b.correct ORDER BY b.model) AS correct, list(b.wrong ORDER BY b.model) AS wrong,
        list(b.ahead ORDER BY b.model) AS ahead, list(b.behind ORDER BY b.model) AS behind,
        (SELECT list(e.same ORDER BY e.model) FROM every_same AS e) AS same
    FROM bits AS b
    WHERE max_size > 3
),
ranks AS (
    SELECT unnest(range(1, len(names) + 1))::INT AS rank FROM board
),
larger AS (
    SELECT [r.rank] AS members FROM ranks AS r
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
        warehouse.at_least(list_transform(c.members, lambda m: b.same[u.rank][m])) AS votes,
        b.behind[u.rank] | (b.ahead[u.rank] & ~list_reduce(list_transform(
            c.members, lambda m: CASE WHEN m < u.rank THEN b.correct[m] ELSE xor(c.answered, c.answered) END
        ), lambda x, y: x | y)) AS wins_tie,
        list_sum(list_transform(c.failures, lambda f: bit_count(f & b.wrong[u.rank] & c.answered))) AS once,
        list_sum(list_transform(
            c.failures, lambda f, k: 2 * (k - 1) * bit_count(f & b.wrong[u.rank] & c.answered)
        )) AS twice
    FROM counted AS c, board AS b, unnest(c.members) AS u(rank)
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
