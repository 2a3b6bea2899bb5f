-- Rows of choice_logprobs for the partitions of temp.wanted.
SELECT
    r.benchmark, r.task, r.doc_id, r.model, r.choice::INT AS choice, r.choice_logprobs[r.choice + 1] AS logprob,
    length(r.choices[r.choice + 1])::INT AS n_chars, strlen(r.choices[r.choice + 1])::INT AS n_bytes,
    r.is_greedy[r.choice + 1] AS is_greedy, r.choice_tokens[r.choice + 1]::INT AS n_tokens,
    r.n_prompt_tokens::INT AS n_prompt_tokens
FROM (
    SELECT s.*, d.choices, unnest(range(len(s.choice_logprobs))) AS choice
    FROM scores AS s
    SEMI JOIN wanted AS w USING (benchmark, task, model)
    JOIN documents AS d USING (benchmark, task, doc_id)
    WHERE d.label IS NOT NULL
) AS r;

