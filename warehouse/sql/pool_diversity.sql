-- One pool, over the documents all its members answered: one pass over documents × members, whatever the pool's size.
CREATE OR REPLACE MACRO pool_diversity(benchmark, models, task := '*', split := '*', snapshot := 'now') AS TABLE
WITH documents AS (
    SELECT row_number() OVER () - 1 AS position, d.k, d.failed, d.agreement, d.votes, d.plurality_right
    FROM warehouse.pool_documents(benchmark, models, task, split, snapshot) AS d
),
misses AS (
    SELECT d.position, d.k, unnest(d.failed) AS rank FROM documents AS d
),
focal AS (
    SELECT
        m.rank, count(*) AS failures,
        1 - sum(m.k * (m.k - 1)) / nullif((len(list_distinct(warehouse.name_list(models))) - 1) * sum(m.k), 0) AS diversity
    FROM misses AS m
    GROUP BY m.rank
),
blocks AS (
    SELECT m.rank, m.position // 64 AS block, bitstring_agg((m.position % 64)::INT, 0, 63) AS wrong
    FROM misses AS m
    GROUP BY ALL
),
joint AS (
    SELECT a.rank AS rank_a, b.rank AS rank_b, sum(bit_count(a.wrong & b.wrong)) AS both_wrong
    FROM blocks AS a JOIN blocks AS b USING (block)
    WHERE a.rank < b.rank
    GROUP BY ALL
),
members AS (
    SELECT r.rank, coalesce(f.failures, 0) AS failures
    FROM (SELECT unnest(range(len(list_distinct(warehouse.name_list(models))))) AS rank) AS r LEFT JOIN focal AS f USING (rank)
),
pairs AS (
    SELECT
        (SELECT count(*) FROM documents) - a.failures - b.failures + coalesce(j.both_wrong, 0) AS n11,
        coalesce(j.both_wrong, 0) AS n00, b.failures - coalesce(j.both_wrong, 0) AS n10,
        a.failures - coalesce(j.both_wrong, 0) AS n01
    FROM members AS a JOIN members AS b ON a.rank < b.rank
    LEFT JOIN joint AS j ON j.rank_a = a.rank AND j.rank_b = b.rank
),
over_pairs AS (
    SELECT warehouse.pair_means(p.n11, p.n00, p.n10, p.n01) AS means FROM pairs AS p
),
categories AS (
    SELECT sum(v.vote.votes) AS votes
    FROM (SELECT unnest(d.votes) AS vote FROM documents AS d) AS v
    GROUP BY v.vote.category
),
totals AS (
    SELECT
        count(*) AS n, len(list_distinct(warehouse.name_list(models))) AS size, sum(d.k) AS failures, sum(d.k * (d.k - 1)) AS joint_failures,
        sum(d.agreement) AS agreement, count_if(d.plurality_right) AS n_right,
        (SELECT sum(c.votes::DOUBLE * c.votes) FROM categories AS c) AS squares,
        (SELECT avg(f.diversity) FROM focal AS f) AS focal_diversity
    FROM documents AS d
)
SELECT
    t.n, t.size,
    unnest(warehouse.pool_statistics(
        t.n, t.size, t.failures, t.joint_failures, t.agreement, t.squares, t.n_right, t.focal_diversity, p.means
    ))
FROM totals AS t, over_pairs AS p;
