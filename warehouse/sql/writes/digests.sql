-- A digest of the rows of a partition, of a task's documents, or of a run's decisions, whatever their order and the model's name: how many
-- they are, and the sums of both halves of their MD5. A NULL is not an empty text, and a row that is there three times is
-- not one that is there once. A partition's traces, where it has any, follow after a plus.
CREATE OR REPLACE TEMP MACRO rows_digest(hash) AS concat_ws(
    ':', count(*), sum((hash >> 64)::HUGEINT), sum((hash & 18446744073709551615)::HUGEINT)
);

CREATE OR REPLACE TEMP MACRO choice_logprobs_digest(r) AS rows_digest(md5_number(to_json([
    r.doc_id::VARCHAR, r.choice::VARCHAR, r.token_ids::VARCHAR, r.token_logprobs::VARCHAR, r.logprob::VARCHAR,
    r.n_tokens::VARCHAR, r.n_chars::VARCHAR, r.n_bytes::VARCHAR, r.is_greedy::VARCHAR, r.n_prompt_tokens::VARCHAR,
    r.truncated::VARCHAR, r.unconditional_logprob::VARCHAR
] || CASE WHEN r.covered_mass IS NULL THEN [] ELSE [r.covered_mass::VARCHAR] END
  || CASE WHEN r.unanswered IS NULL THEN [] ELSE [r.unanswered] END)::VARCHAR));

CREATE OR REPLACE TEMP MACRO answer_passes_digest(r) AS rows_digest(md5_number(to_json([
    r.doc_id::VARCHAR, r.pass::VARCHAR, r.text, r.answer, r.finish_reason, r.n_tokens::VARCHAR,
    r.n_prompt_tokens::VARCHAR
] || CASE WHEN r.unanswered IS NULL THEN [] ELSE [r.unanswered] END)::VARCHAR));

CREATE OR REPLACE TEMP MACRO traces_digest(r) AS rows_digest(md5_number(to_json([
    r.doc_id::VARCHAR, r.trace::VARCHAR, r.text, r.token_ids::VARCHAR, r.n_tokens::VARCHAR, r.finish_reason,
    r.cut_by_budget::VARCHAR, r.token_logprobs::VARCHAR
])::VARCHAR));

CREATE OR REPLACE TEMP MACRO docs_digest(r) AS rows_digest(md5_number(to_json([
    r.doc_id::VARCHAR, r.doc_hash, r.question, r.choices::VARCHAR, r.label::VARCHAR, r.gold, r.split,
    r.confidential::VARCHAR
] || CASE WHEN r.source_id IS NULL THEN [] ELSE [r.source_id] END)::VARCHAR));

CREATE OR REPLACE TEMP MACRO decisions_digest(r) AS rows_digest(md5_number(to_json([
    r.task, r.doc_id::VARCHAR, r.pool::VARCHAR, r.prediction::VARCHAR, r.answer, r.correct::VARCHAR, r.reward::VARCHAR,
    r.rounds::VARCHAR, r.probability::VARCHAR
])::VARCHAR));
