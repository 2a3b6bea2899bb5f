-- One pool over the `window` documents before each document it answered (fewer at the start), in task and doc_id
-- order. All metrics are sums over that window.
CREATE OR REPLACE MACRO pool_diversity_over_time(benchmark, models, "window", task := '*', snapshot := 'now') AS TABLE
WITH documents AS (
    SELECT
        row_number() OVER (ORDER BY d.task, d.doc_id) - 1 AS position, d.task AS of_task, d.doc_id,
        d.k, d.failed, d.agreement, d.votes, d.plurality_right
    FROM warehouse.pool_documents(benchmark, models, task, '*', snapshot) AS d
),
totals AS (
    SELECT
        d.position, d.of_task, d.doc_id, count(*) OVER before AS n, len(list_distinct(warehouse.name_list(models))) AS size,
        sum(d.k) OVER before AS failures, sum(d.k * (d.k - 1)) OVER before AS joint_failures,
        sum(d.agreement) OVER before AS agreement, count_if(d.plurality_right) OVER before AS n_right
    FROM documents AS d
    WINDOW before AS (ORDER BY d.position ROWS BETWEEN "window" PRECEDING AND 1 PRECEDING)
),
members AS (
    SELECT unnest(range(len(list_distinct(warehouse.name_list(models)))))::INT AS rank
),
focal AS (
    SELECT
        d.position, m.rank,
        sum(CASE WHEN list_contains(d.failed, m.rank) THEN d.k END) OVER before AS once,
        sum(CASE WHEN list_contains(d.failed, m.rank) THEN d.k * (d.k - 1) END) OVER before AS twice
    FROM documents AS d, members AS m
    WINDOW before AS (PARTITION BY m.rank ORDER BY d.position ROWS BETWEEN "window" PRECEDING AND 1 PRECEDING)
),
over_members AS (
    SELECT f.position, avg(1 - f.twice / nullif((len(list_distinct(warehouse.name_list(models))) - 1) * f.once, 0)) AS focal_diversity
    FROM focal AS f
    GROUP BY ALL
),
paired AS (
    SELECT
        d.position, a.rank AS rank_a, b.rank AS rank_b,
        NOT list_contains(d.failed, a.rank) AS right_a, NOT list_contains(d.failed, b.rank) AS right_b
    FROM documents AS d, members AS a JOIN members AS b ON a.rank < b.rank
),
pairs AS (
    SELECT
        p.position,
        count(*) FILTER (p.right_a AND p.right_b) OVER before AS n11,
        count(*) FILTER (NOT p.right_a AND NOT p.right_b) OVER before AS n00,
        count(*) FILTER (p.right_a AND NOT p.right_b) OVER before AS n10,
        count(*) FILTER (NOT p.right_a AND p.right_b) OVER before AS n01
    FROM paired AS p
    WINDOW before AS (
        PARTITION BY p.rank_a, p.rank_b ORDER BY p.position ROWS BETWEEN "window" PRECEDING AND 1 PRECEDING
    )
),
over_pairs AS (
    SELECT
        p.position, warehouse.pair_means(p.n11, p.n00, p.n10, p.n01) AS means
    FROM pairs AS p
    GROUP BY ALL
),
-- The sum of squared category counts changes only where a document enters or leaves the window.
cast_votes AS (
    SELECT v.position, v.vote.category AS category, v.vote.votes AS votes
    FROM (SELECT d.position, unnest(d.votes) AS vote FROM documents AS d) AS v
),
changes AS (
    SELECT e.position, e.category, sum(e.votes) AS change
    FROM (
        SELECT c.position + 1 AS position, c.category, c.votes FROM cast_votes AS c
        UNION ALL
        SELECT c.position + "window" + 1, c.category, -c.votes FROM cast_votes AS c
    ) AS e
    GROUP BY ALL
),
counts AS (
    SELECT c.position, c.change, sum(c.change) OVER (PARTITION BY c.category ORDER BY c.position) AS votes
    FROM changes AS c
),
steps AS (
    SELECT c.position, sum(c.votes ** 2 - (c.votes - c.change) ** 2) AS step FROM counts AS c GROUP BY ALL
),
squares AS (
    SELECT d.position, sum(coalesce(s.step, 0)) OVER (ORDER BY d.position) AS squares
    FROM documents AS d LEFT JOIN steps AS s USING (position)
)
SELECT
    t.position, t.of_task AS task, t.doc_id, t.n, t.size,
    unnest(warehouse.pool_statistics(
        t.n, t.size, t.failures, t.joint_failures, t.agreement, s.squares, t.n_right, f.focal_diversity, p.means
    ))
FROM totals AS t
JOIN squares AS s USING (position)
LEFT JOIN over_members AS f USING (position)
LEFT JOIN over_pairs AS p USING (position)
UNION ALL BY NAME
SELECT error('pool_diversity_over_time: window must be at least 1') AS position
WHERE coalesce("window", 0) < 1
ORDER BY position;
