-- Writes the records of temp.partitions, with the digests of their rows.
INSERT INTO extractions
SELECT p.* REPLACE (coalesce(c.digest, a.digest) || coalesce('+' || t.digest, '') AS digest)
FROM temp.partitions AS p
LEFT JOIN (
    SELECT r.benchmark, r.task, r.model, choice_logprobs_digest(r) AS digest FROM temp.choices AS r GROUP BY ALL
) AS c USING (benchmark, task, model)
LEFT JOIN (
    SELECT r.benchmark, r.task, r.model, answer_passes_digest(r) AS digest FROM temp.passes AS r GROUP BY ALL
) AS a USING (benchmark, task, model)
LEFT JOIN (
    SELECT r.benchmark, r.task, r.model, traces_digest(r) AS digest FROM temp.thought AS r GROUP BY ALL
) AS t USING (benchmark, task, model);
