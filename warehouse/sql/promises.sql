-- How likely so many wrong answers or more are among the answered ones, if a share `target` is wrong: the exact binomial test.
CREATE OR REPLACE MACRO binomial_tail(wrong, answered, target) AS CASE
    WHEN wrong <= 0 THEN 1.0
    ELSE list_sum(list_transform(range(wrong, answered + 1), lambda i: exp(
        lgamma(answered + 1) - lgamma(i + 1) - lgamma(answered - i + 1) + i * ln(target) + (answered - i) * ln(1 - target)
    )))
END;

-- Promises that at most a share `target` of a run's answers above a threshold is wrong. Withdrawn for good by a test at 5 %
-- over all looks (0.05 * 6 / pi^2 / look^2 each), in doubt where the latest alone is significant at 5 %.
CREATE OR REPLACE VIEW promises AS
WITH tested AS (
    SELECT l.*, warehouse.binomial_tail(l.wrong, l.answered, l.target) AS p_value FROM promise_looks AS l WHERE l.look > 0
),
latest AS (
    SELECT
        t.run_id, t.target, max(t.look) AS looks, arg_max(t.n, t.look) AS n, arg_max(t.answered, t.look) AS answered,
        arg_max(t.wrong, t.look) AS wrong, arg_max(t.p_value, t.look) AS p_value, max(t.looked_at) AS looked_at,
        bool_or(t.p_value <= 0.05 * 6 / (pi() ** 2 * t.look ** 2)) AS is_broken
    FROM tested AS t
    GROUP BY ALL
)
SELECT
    m.run_id, m.benchmark, m.method, m.seed, m.target, m.threshold, m.n AS n_train,
    m.answered / nullif(m.n, 0) AS coverage_train, m.wrong / nullif(m.answered, 0) AS error_train,
    coalesce(l.looks, 0) AS looks, l.n, l.answered, l.wrong, l.answered / nullif(l.n, 0) AS coverage,
    l.wrong / nullif(l.answered, 0) AS error, l.p_value, l.looked_at,
    CASE
        WHEN m.threshold IS NULL THEN 'not made' WHEN l.looks IS NULL THEN 'not tested'
        WHEN l.is_broken THEN 'withdrawn' WHEN l.p_value <= 0.05 THEN 'in doubt' ELSE 'kept'
    END AS state,
    m.warning
FROM promise_looks AS m LEFT JOIN latest AS l USING (run_id, target)
WHERE m.look = 0;
