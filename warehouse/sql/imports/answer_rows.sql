-- Rows of answer_passes for the partitions of temp.wanted.
SELECT
    s.benchmark, s.task, s.doc_id, s.model, coalesce(s.pass, 0)::INT AS pass, coalesce(s.text, s.answer) AS text,
    coalesce(u.canonical, c.canonical) AS answer, s.n_tokens::INT AS n_tokens, s.n_prompt_tokens::INT AS n_prompt_tokens
FROM scores AS s
SEMI JOIN wanted AS w USING (benchmark, task, model)
JOIN documents AS d USING (benchmark, task, doc_id)
LEFT JOIN canonical AS c ON c.answer = s.answer
LEFT JOIN other_units AS u ON u.given = d.given AND u.answer = s.answer
WHERE d.label IS NULL
ORDER BY s.benchmark, s.model, s.task, s.doc_id, s.pass;
