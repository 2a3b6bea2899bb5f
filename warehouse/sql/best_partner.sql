-- Which other model makes up best for one model's failures, over the documents both answered, best first.
-- rescued: of the documents that the model gets wrong, the share that the partner gets right.
CREATE OR REPLACE MACRO best_partner(benchmark, model, task := '*', split := '*') AS TABLE
WITH pairs AS (
    SELECT
        CASE WHEN p.model_a = model THEN p.model_b ELSE p.model_a END AS partner, p.n, p.both_right, p.both_wrong,
        CASE WHEN p.model_a = model THEN p.only_a ELSE p.only_b END AS only_it,
        CASE WHEN p.model_a = model THEN p.only_b ELSE p.only_a END AS only_partner
    FROM pairwise_diversity(benchmark, task := task, split := split) AS p
    WHERE model IN (p.model_a, p.model_b)
)
SELECT
    p.partner, p.n, (p.both_right + p.only_partner) / p.n AS accuracy,
    p.only_partner / nullif(p.only_partner + p.both_wrong, 0) AS rescued,
    (p.n - p.both_wrong) / p.n AS either_right, p.both_wrong / p.n AS double_fault
FROM pairs AS p
UNION ALL
SELECT
    error('best_partner: no other model answered what ' || model || ' did on ' || benchmark),
    NULL, NULL, NULL, NULL, NULL
WHERE NOT EXISTS (FROM pairs)
ORDER BY rescued DESC, partner;
