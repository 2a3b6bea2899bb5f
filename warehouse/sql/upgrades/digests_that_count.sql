-- Until schema 9 a digest was the exclusive or of the rows' MD5, which does not see a row that is there three times.
-- Rows whose old digest is right get the new one; the others keep the old one, so that they stay known as altered.
CREATE OR REPLACE TEMP MACRO old_choice_logprobs_digest(r) AS bit_xor(md5_number(concat_ws(
    '|', r.doc_id, r.choice, r.token_ids, r.token_logprobs, r.logprob, r.n_tokens, r.n_chars, r.n_bytes,
    r.is_greedy, r.n_prompt_tokens, r.truncated, r.unconditional_logprob
)))::VARCHAR;

CREATE OR REPLACE TEMP MACRO old_answer_passes_digest(r) AS bit_xor(md5_number(concat_ws(
    '|', r.doc_id, r.pass, r.text, r.answer, r.finish_reason, r.n_tokens, r.n_prompt_tokens
)))::VARCHAR;

CREATE OR REPLACE TEMP MACRO old_docs_digest(r) AS bit_xor(md5_number(to_json([
    r.doc_id::VARCHAR, r.doc_hash, r.question, r.choices::VARCHAR, r.label::VARCHAR, r.gold, r.split,
    r.confidential::VARCHAR
])::VARCHAR))::VARCHAR;

UPDATE extractions SET digest = n.new
FROM (
    SELECT c.benchmark, c.task, c.model, choice_logprobs_digest(c) AS new, old_choice_logprobs_digest(c) AS old
    FROM choice_logprobs AS c GROUP BY ALL
    UNION ALL
    SELECT p.benchmark, p.task, p.model, answer_passes_digest(p), old_answer_passes_digest(p)
    FROM answer_passes AS p GROUP BY ALL
) AS n
WHERE (extractions.benchmark, extractions.task, extractions.model) = (n.benchmark, n.task, n.model)
    AND coalesce(extractions.digest, n.old) = n.old;

UPDATE doc_digests SET digest = n.new
FROM (
    SELECT d.benchmark, d.task, docs_digest(d) AS new, old_docs_digest(d) AS old FROM docs AS d GROUP BY ALL
) AS n
WHERE (doc_digests.benchmark, doc_digests.task, doc_digests.digest) = (n.benchmark, n.task, n.old);
