-- Whether a rival's voters outvote the right answer's in a pool. Only a lower choice wins a tie; among answers the one
-- of the first voter, who has the highest bit.
CREATE OR REPLACE MACRO outvotes(rival, supporters, pool) AS
    bit_count(rival.voters & pool) > bit_count(supporters & pool)
    OR bit_count(rival.voters & pool) = bit_count(supporters & pool)
        AND coalesce(rival.wins_tie, rival.voters & pool > supporters & pool);

-- Every pool of 2 to max_size models of a benchmark, each over the documents all its members answered.
-- A model is a bit (the alphabetically first the highest, so at most 126), a pool a mask. Documents collapse to
-- distinct masks; focal diversity follows from how often two and three models fail together.
CREATE OR REPLACE MACRO all_pools(benchmark, max_size, task := '*', split := '*') AS TABLE
WITH RECURSIVE answered AS (
    SELECT p.task AS of_task, p.doc_id, p.model, p.prediction, p.answer, p.correct
    FROM outcomes AS p
    WHERE p.benchmark = benchmark AND (task = '*' OR p.task = task) AND (split = '*' OR p.split = split)
),
members AS (
    SELECT
        a.model, row_number() OVER (ORDER BY a.model) AS rank,
        1::HUGEINT << (count(*) OVER () - row_number() OVER (ORDER BY a.model))::INT AS bit
    FROM (SELECT DISTINCT model FROM answered) AS a
),
pools AS (
    SELECT bit AS pool, 1 AS size, [rank] AS ranks, [model] AS models FROM members
    UNION ALL
    SELECT p.pool | m.bit, p.size + 1, list_append(p.ranks, m.rank), list_append(p.models, m.model)
    FROM pools AS p JOIN members AS m ON m.rank > p.ranks[-1]
    WHERE p.size < max_size
),
ballots AS (
    SELECT
        of_task, doc_id, prediction, answer, correct, sum(bit)::HUGEINT AS voters,
        prediction IS NULL AND answer IS NULL AS blank
    FROM answered JOIN members USING (model)
    GROUP BY ALL
),
documents AS (
    SELECT
        of_task, doc_id, sum(voters)::HUGEINT AS present,
        coalesce(sum(voters) FILTER (NOT correct), 0)::HUGEINT AS failed
    FROM ballots
    GROUP BY ALL
),
-- How often f, g and h fail together (g <= h stands for both orders).
failing AS (
    SELECT p.present, p.failed, p.times, m.rank
    FROM (SELECT present, failed, count(*) AS times FROM documents GROUP BY ALL) AS p
    JOIN members AS m ON p.failed & m.bit <> 0
),
joint AS (
    SELECT
        f.present, f.rank AS f, g.rank AS g, h.rank AS h,
        sum(f.times * CASE WHEN g.rank = h.rank THEN 1 ELSE 2 END)::DOUBLE AS times
    FROM failing AS f
    JOIN failing AS g USING (present, failed)
    JOIN failing AS h ON h.present = f.present AND h.failed = f.failed AND h.rank >= g.rank
    GROUP BY ALL
),
pool_members AS (
    SELECT pool, size, unnest(ranks) AS rank FROM pools WHERE size > 1
),
-- Of f's failures: the sum of k (how many members fail), and of k * k.
focal AS (
    SELECT f.pool, f.size, f.rank, sum(j.times) FILTER (j.g = j.h) AS once, sum(j.times) AS squares
    FROM pool_members AS f
    JOIN pool_members AS g USING (pool)
    JOIN pool_members AS h ON h.pool = f.pool AND h.rank >= g.rank
    JOIN joint AS j ON j.f = f.rank AND j.g = g.rank AND j.h = h.rank AND j.present & f.pool = f.pool
    GROUP BY ALL
),
diversity AS (
    SELECT pool, avg(1 - (squares - once) / ((size - 1) * once)) AS focal_diversity FROM focal GROUP BY ALL
),
-- What decides the plurality: who votes right, and who votes for each rival.
contests AS (
    SELECT
        d.present, coalesce(any_value(r.voters), 0)::HUGEINT AS supporters,
        list_sort(
            list({voters: w.voters, wins_tie: w.prediction < r.prediction}) FILTER (w.voters IS NOT NULL)
        ) AS rivals
    FROM documents AS d
    LEFT JOIN ballots AS r ON r.of_task = d.of_task AND r.doc_id = d.doc_id AND r.correct
    LEFT JOIN ballots AS w
        ON w.of_task = d.of_task AND w.doc_id = d.doc_id AND NOT w.correct AND NOT w.blank AND r.voters IS NOT NULL
    GROUP BY d.of_task, d.doc_id, d.present
),
-- Most documents have at most three rivals, which need no list: lists are slow for a document and pool each.
patterns AS (
    SELECT
        present, supporters, rivals[1] AS first, rivals[2] AS second, rivals[3] AS third,
        CASE WHEN len(rivals) > 3 THEN rivals[4:] END AS others, count(*) AS times
    FROM contests
    GROUP BY ALL
),
votes AS (
    SELECT
        p.pool, sum(c.times) AS n,
        sum(c.times) FILTER (
            CASE
                WHEN c.supporters & p.pool = 0 THEN false
                WHEN 2 * bit_count(c.supporters & p.pool) > p.size OR c.first IS NULL THEN true
                WHEN outvotes(c.first, c.supporters, p.pool) THEN false
                WHEN c.second IS NULL THEN true
                WHEN outvotes(c.second, c.supporters, p.pool) THEN false
                WHEN c.third IS NULL THEN true
                WHEN outvotes(c.third, c.supporters, p.pool) THEN false
                WHEN c.others IS NULL THEN true
                ELSE NOT list_bool_or(list_transform(c.others, lambda w: outvotes(w, c.supporters, p.pool)))
            END
        ) AS n_right
    FROM pools AS p JOIN patterns AS c ON c.present & p.pool = p.pool
    WHERE p.size > 1
    GROUP BY ALL
)
SELECT p.models, p.size, d.focal_diversity, coalesce(v.n_right, 0) / v.n AS plurality_accuracy
FROM pools AS p LEFT JOIN diversity AS d USING (pool) LEFT JOIN votes AS v USING (pool)
WHERE p.size > 1
UNION ALL
SELECT
    [error('all_pools: nobody answered ' || concat(benchmark, '/' || nullif(task, '*'), ', split ' || nullif(split, '*')))::VARCHAR],
    NULL, NULL, NULL
WHERE NOT EXISTS (FROM answered)
ORDER BY size, models;
