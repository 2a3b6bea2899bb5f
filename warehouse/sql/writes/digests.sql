-- A digest of the rows of a partition, or of a task's documents, whatever their order and the model's name: a bit
-- that flips on disk changes it.
CREATE OR REPLACE TEMP MACRO choice_logprobs_digest(r) AS bit_xor(md5_number(concat_ws(
    '|', r.doc_id, r.choice, r.token_ids, r.token_logprobs, r.logprob, r.n_tokens, r.n_chars, r.n_bytes,
    r.is_greedy, r.n_prompt_tokens, r.truncated, r.unconditional_logprob
)))::VARCHAR;

CREATE OR REPLACE TEMP MACRO answer_passes_digest(r) AS bit_xor(md5_number(concat_ws(
    '|', r.doc_id, r.pass, r.text, r.answer, r.finish_reason, r.n_tokens, r.n_prompt_tokens
)))::VARCHAR;

CREATE OR REPLACE TEMP MACRO docs_digest(r) AS bit_xor(md5_number(to_json([
    r.doc_id::VARCHAR, r.doc_hash, r.question, r.choices::VARCHAR, r.label::VARCHAR, r.gold, r.split,
    r.confidential::VARCHAR
])::VARCHAR))::VARCHAR;
