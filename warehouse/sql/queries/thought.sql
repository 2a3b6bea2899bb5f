-- Models with the same weights (of closed ones, the same family) of $2, by how many tokens they think about a query.
SELECT coalesce(m.hf_repo, m.family, c.model) AS weights, c.model, avg(c.n_thought_tokens) AS n_thought_tokens
FROM query_costs AS c JOIN models AS m USING (model)
WHERE c.benchmark = $1 AND list_contains($2, c.model)
GROUP BY ALL
ORDER BY weights, n_thought_tokens, c.model;
