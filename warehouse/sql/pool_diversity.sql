-- One pool, over the documents all its members answered. Documents collapse to patterns of failure, from which the
-- focal, generalized and pairwise statistics follow: one pass over documents × members, whatever the pool's size.
CREATE OR REPLACE MACRO pool_diversity(benchmark, models, task := '*', split := '*') AS TABLE
WITH documents AS (
    SELECT d.k, d.failed, d.agreement, d.votes, d.plurality_right
    FROM pool_documents(benchmark, models, task, split) AS d
),
members AS (
    SELECT unnest(range(len(list_distinct(models))))::INT AS rank
),
patterns AS (
    SELECT d.failed, d.k, count(*) AS times FROM documents AS d GROUP BY ALL
),
focal AS (
    SELECT
        m.rank,
        1 - sum(f.times * f.k * (f.k - 1))
            / nullif((len(list_distinct(models)) - 1) * sum(f.times * f.k), 0) AS diversity
    FROM patterns AS f, members AS m
    WHERE (f.failed >> m.rank) & 1 = 1
    GROUP BY m.rank
),
paired AS (
    SELECT
        a.rank AS rank_a, b.rank AS rank_b, f.times,
        (f.failed >> a.rank) & 1 = 0 AS right_a, (f.failed >> b.rank) & 1 = 0 AS right_b
    FROM patterns AS f, members AS a JOIN members AS b ON a.rank < b.rank
),
pairs AS (
    SELECT
        p.rank_a, p.rank_b,
        coalesce(sum(p.times) FILTER (p.right_a AND p.right_b), 0) AS n11,
        coalesce(sum(p.times) FILTER (NOT p.right_a AND NOT p.right_b), 0) AS n00,
        coalesce(sum(p.times) FILTER (p.right_a AND NOT p.right_b), 0) AS n10,
        coalesce(sum(p.times) FILTER (NOT p.right_a AND p.right_b), 0) AS n01
    FROM paired AS p
    GROUP BY ALL
),
over_pairs AS (
    SELECT pair_means(p.n11, p.n00, p.n10, p.n01) AS means FROM pairs AS p
),
categories AS (
    SELECT sum(v.vote.votes) AS votes
    FROM (SELECT unnest(d.votes) AS vote FROM documents AS d) AS v
    GROUP BY v.vote.category
),
totals AS (
    SELECT
        count(*) AS n, len(list_distinct(models)) AS size, sum(d.k) AS failures, sum(d.k * (d.k - 1)) AS joint_failures,
        sum(d.agreement) AS agreement, count_if(d.plurality_right) AS n_right,
        (SELECT sum(c.votes::DOUBLE * c.votes) FROM categories AS c) AS squares,
        (SELECT avg(f.diversity) FROM focal AS f) AS focal_diversity
    FROM documents AS d
)
SELECT
    t.n, t.size,
    unnest(pool_statistics(
        t.n, t.size, t.failures, t.joint_failures, t.agreement, t.squares, t.n_right, t.focal_diversity, p.means
    ))
FROM totals AS t, over_pairs AS p
WHERE CASE WHEN t.size = 0 THEN error('pool_diversity: name at least one model') ELSE true END;
