-- The prompt_hash of documents, and the prompts that are stored for all models; where one is missing, it is NULL.
SELECT benchmark, task, d.prompt_hash, p.prompt, p.messages, p.continuations
FROM (FROM docs WHERE prompt_hash IS NOT NULL) AS d
FULL JOIN (FROM prompts WHERE model = '*') AS p USING (benchmark, task, doc_id);
