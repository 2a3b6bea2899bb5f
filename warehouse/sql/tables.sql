-- The keys are in TABLE_KEYS of warehouse/integrity.py, what columns mean in documentation.toml.
-- A column added here is added to older warehouses, too.
CREATE TABLE IF NOT EXISTS schema_version (version INT NOT NULL, upgraded_at TIMESTAMPTZ);

CREATE TABLE IF NOT EXISTS models (
    model VARCHAR NOT NULL, hf_repo VARCHAR, revision VARCHAR, family VARCHAR, params_b DOUBLE, active_params_b DOUBLE,
    price DOUBLE, price_input DOUBLE, price_output DOUBLE, licence VARCHAR
);

CREATE TABLE IF NOT EXISTS benchmarks (
    benchmark VARCHAR NOT NULL, kind VARCHAR, category VARCHAR, licence VARCHAR, comparison VARCHAR
);

CREATE TABLE IF NOT EXISTS tasks (
    benchmark VARCHAR NOT NULL, task VARCHAR NOT NULL, lm_eval_task VARCHAR, version VARCHAR, num_fewshot INT,
    dataset VARCHAR, dataset_config VARCHAR, revision VARCHAR, tag VARCHAR
);

CREATE TABLE IF NOT EXISTS docs (
    benchmark VARCHAR NOT NULL, task VARCHAR NOT NULL, doc_id BIGINT NOT NULL, doc_hash VARCHAR, question VARCHAR,
    choices VARCHAR[], label INT, gold VARCHAR, split VARCHAR NOT NULL, confidential BOOLEAN, prompt_hash VARCHAR,
    source_id VARCHAR
);

CREATE TABLE IF NOT EXISTS prompts (
    benchmark VARCHAR, task VARCHAR, doc_id BIGINT, model VARCHAR, prompt VARCHAR,
    messages STRUCT("role" VARCHAR, "content" VARCHAR)[], continuations VARCHAR[]
);

CREATE TABLE IF NOT EXISTS corrections (
    benchmark VARCHAR NOT NULL, task VARCHAR NOT NULL, doc_id BIGINT NOT NULL, doc_hash VARCHAR,
    label INT, gold VARCHAR, label_before INT, gold_before VARCHAR, corrected_at TIMESTAMPTZ
);

CREATE TABLE IF NOT EXISTS choice_logprobs (
    benchmark VARCHAR NOT NULL, task VARCHAR NOT NULL, doc_id BIGINT NOT NULL, model VARCHAR NOT NULL,
    choice INT NOT NULL, token_ids INT[], token_logprobs FLOAT[], logprob DOUBLE NOT NULL, n_tokens INT, n_chars INT,
    n_bytes INT, is_greedy BOOLEAN, n_prompt_tokens INT, truncated BOOLEAN, unconditional_logprob DOUBLE,
    covered_mass DOUBLE, unanswered VARCHAR
);

CREATE TABLE IF NOT EXISTS answer_passes (
    benchmark VARCHAR NOT NULL, task VARCHAR NOT NULL, doc_id BIGINT NOT NULL, model VARCHAR NOT NULL,
    pass INT NOT NULL, text VARCHAR, answer VARCHAR, finish_reason VARCHAR, n_tokens INT, n_prompt_tokens INT,
    unanswered VARCHAR
);

CREATE TABLE IF NOT EXISTS traces (
    benchmark VARCHAR NOT NULL, task VARCHAR NOT NULL, doc_id BIGINT NOT NULL, model VARCHAR NOT NULL,
    trace INT NOT NULL, text VARCHAR, token_ids INT[], n_tokens INT, finish_reason VARCHAR, cut_by_budget BOOLEAN,
    token_logprobs FLOAT[][]
);

CREATE TABLE IF NOT EXISTS extractions (
    extraction_id VARCHAR NOT NULL, model VARCHAR NOT NULL, benchmark VARCHAR NOT NULL, task VARCHAR NOT NULL,
    fingerprint VARCHAR, backend VARCHAR, settings JSON, versions JSON, n_docs BIGINT NOT NULL, seconds DOUBLE,
    committed_at TIMESTAMPTZ, n_whole BIGINT, digest VARCHAR, n_prompt_tokens BIGINT, n_generated_tokens BIGINT,
    tokens_per_second DOUBLE, retries BIGINT, gpus VARCHAR, host VARCHAR, fault VARCHAR, n_ties BIGINT,
    evidence VARCHAR, paid DOUBLE, n_unanswered BIGINT, n_to_ask BIGINT
);

CREATE TABLE IF NOT EXISTS probe_answers (
    probe_id VARCHAR NOT NULL, model VARCHAR NOT NULL, benchmark VARCHAR NOT NULL, task VARCHAR NOT NULL,
    doc_id BIGINT NOT NULL, fingerprint VARCHAR, settings JSON, versions JSON, evidence VARCHAR, probability DOUBLE,
    choices STRUCT(
        choice INT, token_ids INT[], token_logprobs FLOAT[], logprob DOUBLE, n_tokens INT, n_chars INT, n_bytes INT,
        is_greedy BOOLEAN, n_prompt_tokens INT, truncated BOOLEAN, unconditional_logprob DOUBLE, covered_mass DOUBLE,
        unanswered VARCHAR
    )[],
    passes STRUCT(
        pass INT, text VARCHAR, answer VARCHAR, finish_reason VARCHAR, n_tokens INT, n_prompt_tokens INT,
        unanswered VARCHAR
    )[],
    traces STRUCT(
        trace INT, text VARCHAR, token_ids INT[], n_tokens INT, finish_reason VARCHAR, cut_by_budget BOOLEAN,
        token_logprobs FLOAT[][]
    )[],
    seconds DOUBLE, paid DOUBLE, asked_at TIMESTAMPTZ
);

CREATE TABLE IF NOT EXISTS probe_estimates (
    probe_id VARCHAR NOT NULL, model VARCHAR NOT NULL, benchmark VARCHAR NOT NULL, n BIGINT, n_docs BIGINT,
    verdict VARCHAR, metric VARCHAR NOT NULL, other VARCHAR NOT NULL, value DOUBLE, low DOUBLE, high DOUBLE,
    estimated_at TIMESTAMPTZ
);

CREATE TABLE IF NOT EXISTS doc_digests (benchmark VARCHAR NOT NULL, task VARCHAR NOT NULL, digest VARCHAR NOT NULL);

CREATE TABLE IF NOT EXISTS evaluations (
    run_id VARCHAR NOT NULL, benchmark VARCHAR NOT NULL, task VARCHAR NOT NULL, method VARCHAR, study VARCHAR,
    settings JSON, protocol VARCHAR, seed BIGINT, per VARCHAR, split VARCHAR, n BIGINT, accuracy DOUBLE,
    mean_pool_size DOUBLE, cost DOUBLE, seconds DOUBLE, snapshot BIGINT, models VARCHAR[], data VARCHAR,
    created_at TIMESTAMPTZ, budget VARCHAR, mean_rounds DOUBLE, read_at TIMESTAMPTZ, deciding VARCHAR[], n_pools BIGINT,
    commonest_pool DOUBLE, docs_digest VARCHAR
);

CREATE TABLE IF NOT EXISTS decisions (
    run_id VARCHAR NOT NULL, benchmark VARCHAR NOT NULL, task VARCHAR NOT NULL, doc_id BIGINT NOT NULL, pool VARCHAR[],
    prediction INT, answer VARCHAR, correct BOOLEAN, reward DOUBLE, rounds STRUCT("model" VARCHAR, "round" INT)[],
    probability DOUBLE
);

CREATE TABLE IF NOT EXISTS run_digests (run_id VARCHAR NOT NULL, benchmark VARCHAR NOT NULL, digest VARCHAR NOT NULL);

CREATE TABLE IF NOT EXISTS ruled_out (
    run_id VARCHAR NOT NULL, benchmark VARCHAR, method VARCHAR, budget VARCHAR, data VARCHAR
);

CREATE TABLE IF NOT EXISTS promise_looks (
    run_id VARCHAR NOT NULL, benchmark VARCHAR NOT NULL, method VARCHAR, seed BIGINT, target DOUBLE NOT NULL,
    look INT NOT NULL, threshold DOUBLE, n BIGINT, answered BIGINT, wrong BIGINT, data VARCHAR, snapshot BIGINT,
    looked_at TIMESTAMPTZ, warning VARCHAR
);

CREATE TABLE IF NOT EXISTS drift_looks (snapshot BIGINT NOT NULL, looked_at TIMESTAMPTZ);

CREATE TABLE IF NOT EXISTS training_history (
    run_id VARCHAR NOT NULL, benchmark VARCHAR, task VARCHAR, method VARCHAR, seed BIGINT, phase VARCHAR, episode INT,
    reward DOUBLE, accuracy DOUBLE, mean_pool_size DOUBLE, policy_loss DOUBLE, value_loss DOUBLE, entropy DOUBLE,
    approx_kl DOUBLE, clip_fraction DOUBLE, explained_variance DOUBLE, actor_grad_norm DOUBLE, critic_grad_norm DOUBLE
);

CREATE TABLE IF NOT EXISTS renames (old VARCHAR NOT NULL, new VARCHAR NOT NULL, renamed_at TIMESTAMPTZ);
