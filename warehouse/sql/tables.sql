-- What is NOT NULL makes a key or is counted; the keys are in upkeep/keys.py.
CREATE TABLE IF NOT EXISTS schema_version (version INT NOT NULL, upgraded_at TIMESTAMPTZ);

CREATE TABLE IF NOT EXISTS models (
    model VARCHAR NOT NULL, hf_repo VARCHAR, revision VARCHAR, family VARCHAR,
    params_b DOUBLE, active_params_b DOUBLE,
    price DOUBLE,                       -- cents per 1,000 queries
    price_input DOUBLE, price_output DOUBLE         -- cents per million tokens
);
ALTER TABLE models ADD COLUMN IF NOT EXISTS price_input DOUBLE;             -- schema 7, as what follows
ALTER TABLE models ADD COLUMN IF NOT EXISTS price_output DOUBLE;

CREATE TABLE IF NOT EXISTS docs (
    benchmark VARCHAR NOT NULL, task VARCHAR NOT NULL,
    doc_id BIGINT NOT NULL,             -- row in the task's own order
    doc_hash VARCHAR, question VARCHAR, choices VARCHAR[],
    label INT,                          -- index of the right choice; NULL for answers
    gold VARCHAR,                       -- for answers: the canonical answer that `answer` is compared with
    split VARCHAR NOT NULL,             -- 'train' or 'test'
    confidential BOOLEAN                -- its texts stay out of reports and exports unless asked for
);
ALTER TABLE docs ADD COLUMN IF NOT EXISTS confidential BOOLEAN;             -- schema 2
-- What every model was asked: sha256 of the prompt before any chat template. NULL: imported, or older (schema 10).
ALTER TABLE docs ADD COLUMN IF NOT EXISTS prompt_hash VARCHAR;

-- The prompts behind docs.prompt_hash (schema 10).
CREATE TABLE IF NOT EXISTS prompts (
    benchmark VARCHAR, task VARCHAR, doc_id BIGINT,
    model VARCHAR,                      -- whose chat template the text is rendered with; '*': all models'
    prompt VARCHAR,                     -- the text a model reads; NULL where it is rendered for each model
    messages STRUCT("role" VARCHAR, "content" VARCHAR)[],   -- a chat, before it is rendered; else NULL
    continuations VARCHAR[]             -- what follows the prompt, one a choice; NULL for answers
);

-- Documents whose label or gold answer was corrected here, with the values before the correction (schema 3).
CREATE TABLE IF NOT EXISTS corrections (
    benchmark VARCHAR NOT NULL, task VARCHAR NOT NULL, doc_id BIGINT NOT NULL, doc_hash VARCHAR,
    label INT, gold VARCHAR, label_before INT, gold_before VARCHAR, corrected_at TIMESTAMPTZ
);

CREATE TABLE IF NOT EXISTS choice_logprobs (
    benchmark VARCHAR NOT NULL, task VARCHAR NOT NULL, doc_id BIGINT NOT NULL, model VARCHAR NOT NULL,
    choice INT NOT NULL,
    token_ids INT[], token_logprobs FLOAT[],
    logprob DOUBLE NOT NULL,            -- sum over the choice's tokens
    n_tokens INT, n_chars INT, n_bytes INT, is_greedy BOOLEAN, n_prompt_tokens INT, truncated BOOLEAN,
    unconditional_logprob DOUBLE        -- of the choice after nothing; NULL where that was not asked for
);
ALTER TABLE choice_logprobs ADD COLUMN IF NOT EXISTS unconditional_logprob DOUBLE;  -- schema 9

CREATE TABLE IF NOT EXISTS answer_passes (
    benchmark VARCHAR NOT NULL, task VARCHAR NOT NULL, doc_id BIGINT NOT NULL, model VARCHAR NOT NULL,
    pass INT NOT NULL,
    text VARCHAR,
    answer VARCHAR,                     -- canonical; NULL where the text holds none
    finish_reason VARCHAR, n_tokens INT,
    n_prompt_tokens INT                 -- NULL where it is not known
);
ALTER TABLE answer_passes ADD COLUMN IF NOT EXISTS n_prompt_tokens INT;     -- schema 7

CREATE TABLE IF NOT EXISTS extractions (
    extraction_id VARCHAR NOT NULL, model VARCHAR NOT NULL, benchmark VARCHAR NOT NULL, task VARCHAR NOT NULL,
    fingerprint VARCHAR, backend VARCHAR, settings JSON, versions JSON,
    n_docs BIGINT NOT NULL, seconds DOUBLE, committed_at TIMESTAMPTZ,
    n_whole BIGINT,                     -- documents the task had without a limit; NULL where that is not known
    digest VARCHAR,                     -- of the rows, in any order; NULL for those written before schema 3
    n_prompt_tokens BIGINT,             -- of the prompts, each once a document, and of the choices
    n_generated_tokens BIGINT,          -- of the sampled texts
    tokens_per_second DOUBLE,           -- of both; what a cache spared the engine counts, too
    retries BIGINT,                     -- how often it was begun before, and failed or was killed
    gpus VARCHAR,                       -- as in CUDA_VISIBLE_DEVICES; NULL for a CPU or a server's
    host VARCHAR                        -- this and what is above: NULL for imports, and before schema 8
);
ALTER TABLE extractions ADD COLUMN IF NOT EXISTS n_whole BIGINT;            -- schema 2
ALTER TABLE extractions ADD COLUMN IF NOT EXISTS digest VARCHAR;            -- schema 3
ALTER TABLE extractions ADD COLUMN IF NOT EXISTS n_prompt_tokens BIGINT;    -- schema 8, as what follows
ALTER TABLE extractions ADD COLUMN IF NOT EXISTS n_generated_tokens BIGINT;
ALTER TABLE extractions ADD COLUMN IF NOT EXISTS tokens_per_second DOUBLE;
ALTER TABLE extractions ADD COLUMN IF NOT EXISTS retries BIGINT;
ALTER TABLE extractions ADD COLUMN IF NOT EXISTS gpus VARCHAR;
ALTER TABLE extractions ADD COLUMN IF NOT EXISTS host VARCHAR;
-- Why its rows count nowhere, until they are extracted again; NULL: they count (schema 10, as what follows).
ALTER TABLE extractions ADD COLUMN IF NOT EXISTS fault VARCHAR;
ALTER TABLE extractions ADD COLUMN IF NOT EXISTS n_ties BIGINT;     -- documents whose best choices are equally likely

-- A digest of each task's documents, whatever their order: a bit that flips on disk changes it (schema 4).
CREATE TABLE IF NOT EXISTS doc_digests (benchmark VARCHAR NOT NULL, task VARCHAR NOT NULL, digest VARCHAR NOT NULL);

CREATE TABLE IF NOT EXISTS evaluations (
    run_id VARCHAR NOT NULL, benchmark VARCHAR NOT NULL,
    task VARCHAR NOT NULL,              -- '*': all documents of the benchmark pooled
    method VARCHAR,
    study VARCHAR,                      -- the study it is part of; NULL: it stands on the leaderboard
    settings JSON,                      -- what differs from the method's defaults; {}: nothing. 'tuned': how many
                                        -- trials on folds of train chose the others
    protocol VARCHAR,
    seed BIGINT,                        -- NULL for a deterministic method
    per VARCHAR,                        -- one policy for the 'benchmark', or one for each 'task'
    split VARCHAR, n BIGINT, accuracy DOUBLE, mean_pool_size DOUBLE,
    cost DOUBLE,                        -- cents per 1,000 queries
    seconds DOUBLE,
    snapshot BIGINT,                    -- the one that was read
    models VARCHAR[],                   -- the pool to choose from
    data VARCHAR,                       -- a fingerprint of the rows: runs of equal data compare
    created_at TIMESTAMPTZ,
    budget VARCHAR,                     -- what a document may cost on average: '4' or 'all' models, '120c' cents per
                                        -- 1,000 queries; NULL: the method as it is
    mean_rounds DOUBLE                  -- how often a document waits for models that are asked at the same time
);
ALTER TABLE evaluations ADD COLUMN IF NOT EXISTS budget VARCHAR;            -- schema 7
ALTER TABLE evaluations ADD COLUMN IF NOT EXISTS mean_rounds DOUBLE;

CREATE TABLE IF NOT EXISTS decisions (
    run_id VARCHAR NOT NULL, benchmark VARCHAR NOT NULL, task VARCHAR NOT NULL, doc_id BIGINT NOT NULL,
    pool VARCHAR[], prediction VARCHAR, correct BOOLEAN, reward DOUBLE,
    rounds STRUCT("model" VARCHAR, "round" INT)[],   -- in which round, from 1, each was asked; NULL: not known
    probability DOUBLE                  -- how likely the method held its answer to be right; NULL where it cannot say
);
ALTER TABLE decisions ADD COLUMN IF NOT EXISTS rounds STRUCT("model" VARCHAR, "round" INT)[];   -- schema 7
ALTER TABLE decisions ADD COLUMN IF NOT EXISTS probability DOUBLE;

-- Runs that a budget rules out: the method never asks so few models, or lacks prices (schema 7).
CREATE TABLE IF NOT EXISTS ruled_out (
    run_id VARCHAR NOT NULL, benchmark VARCHAR, method VARCHAR, budget VARCHAR, data VARCHAR
);

CREATE TABLE IF NOT EXISTS training_history (
    run_id VARCHAR NOT NULL, benchmark VARCHAR, task VARCHAR, method VARCHAR, seed BIGINT,
    phase VARCHAR,                      -- what learns on a pass over train: 'decider', 'fusion' or both ('joint');
                                        -- 'stage': Fusion, fitted once so many models have answered
    episode INT,                        -- the pass or stage, from 0 in each phase
    reward DOUBLE,                      -- NULL at a stage
    accuracy DOUBLE,                    -- on the pass; at a stage, on train documents Fusion was not fitted on
    mean_pool_size DOUBLE
);
ALTER TABLE training_history ADD COLUMN IF NOT EXISTS policy_loss DOUBLE;          -- schema 5, as what follows
ALTER TABLE training_history ADD COLUMN IF NOT EXISTS value_loss DOUBLE;
ALTER TABLE training_history ADD COLUMN IF NOT EXISTS entropy DOUBLE;
ALTER TABLE training_history ADD COLUMN IF NOT EXISTS approx_kl DOUBLE;
ALTER TABLE training_history ADD COLUMN IF NOT EXISTS clip_fraction DOUBLE;
ALTER TABLE training_history ADD COLUMN IF NOT EXISTS explained_variance DOUBLE;
ALTER TABLE training_history ADD COLUMN IF NOT EXISTS actor_grad_norm DOUBLE;
ALTER TABLE training_history ADD COLUMN IF NOT EXISTS critic_grad_norm DOUBLE;

-- Models that were renamed, so that their past runs and trained agents are still found (schema 5).
CREATE TABLE IF NOT EXISTS renames (old VARCHAR NOT NULL, new VARCHAR NOT NULL, renamed_at TIMESTAMPTZ);
