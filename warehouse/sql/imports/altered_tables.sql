-- The first task, partition or run (task '*') of temp.given_* that does not match the digest that was exported with it.
WITH answers AS (
    SELECT c.benchmark, c.task, c.model, choice_logprobs_digest(c) AS digest FROM temp.given_choice_logprobs AS c GROUP BY ALL
    UNION ALL
    SELECT p.benchmark, p.task, p.model, answer_passes_digest(p) FROM temp.given_answer_passes AS p GROUP BY ALL
),
thoughts AS (
    SELECT t.benchmark, t.task, t.model, traces_digest(t) AS digest FROM temp.given_traces AS t GROUP BY ALL
),
found AS (
    SELECT d.benchmark, d.task, NULL AS model, docs_digest(d) AS digest FROM temp.given_docs AS d GROUP BY ALL
    UNION ALL
    SELECT benchmark, task, model, a.digest || coalesce('+' || t.digest, '')
    FROM answers AS a FULL JOIN thoughts AS t USING (benchmark, task, model)
    UNION ALL
    SELECT d.benchmark, '*' AS task, d.run_id AS model, decisions_digest(d) AS digest
    FROM temp.given_decisions AS d SEMI JOIN temp.given_run_digests USING (run_id) SEMI JOIN temp.given_evaluations USING (run_id)
    GROUP BY ALL
),
exported AS (
    SELECT g.benchmark, g.task, NULL AS model, g.digest FROM temp.given_doc_digests AS g
    UNION ALL
    SELECT e.benchmark, e.task, e.model, e.digest FROM temp.given_extractions AS e WHERE e.n_docs > 0
    UNION ALL
    SELECT g.benchmark, '*' AS task, g.run_id AS model, g.digest FROM temp.given_run_digests AS g
)
SELECT coalesce(f.benchmark, e.benchmark), coalesce(f.task, e.task), coalesce(f.model, e.model)
FROM found AS f
FULL JOIN exported AS e
    ON (f.benchmark, f.task) = (e.benchmark, e.task) AND f.model IS NOT DISTINCT FROM e.model
WHERE f.digest IS DISTINCT FROM e.digest
ORDER BY ALL
LIMIT 1;
