-- Choices by log-likelihood per character and per UTF-8 byte, lm-eval's acc_norm and acc_bytes: the official scores of
-- BBH, MuSR and GPQA; and by how much likelier the question makes them, its acc_mutual_info. Ties go to the lowest index.
-- Scores imported without the choices' texts, or extracted without unconditional log-probs, leave NULL.
CREATE OR REPLACE VIEW outcomes_norm AS
WITH rated AS (
    SELECT
        c.benchmark, c.task, c.doc_id, c.model, c.choice, c.n_chars, c.n_bytes, c.unconditional_logprob,
        CASE WHEN c.n_chars > 0 THEN c.logprob / c.n_chars ELSE '-inf'::DOUBLE END AS per_char,
        CASE WHEN c.n_bytes > 0 THEN c.logprob / c.n_bytes ELSE '-inf'::DOUBLE END AS per_byte,
        c.logprob - c.unconditional_logprob AS gained, c.unanswered,
        coalesce(isfinite(c.logprob) AND coalesce(c.logprob <= 1e-6 * c.n_tokens, true), false) AS counts
    FROM choice_logprobs AS c
),
known AS (
    SELECT
        r.benchmark, r.task, r.doc_id, r.model, count(r.unanswered) = 0 AS answered,
        CASE WHEN count(r.n_chars) = count(*) THEN arg_max(r.choice, {l: r.per_char, first: -r.choice}) END
            AS prediction,
        CASE WHEN count(r.n_bytes) = count(*) THEN arg_max(r.choice, {l: r.per_byte, first: -r.choice}) END
            AS prediction_bytes,
        CASE
            WHEN count(r.unconditional_logprob) = count(*) THEN arg_max(r.choice, {l: r.gained, first: -r.choice})
        END AS prediction_mutual_info
    FROM rated AS r
    GROUP BY ALL
    HAVING bool_and(r.counts)
)
SELECT
    k.benchmark, k.task, k.doc_id, d.split, k.model, k.prediction,
    CASE WHEN k.prediction IS NOT NULL THEN coalesce(k.answered AND k.prediction = d.label, false) END AS correct,
    k.prediction_bytes,
    CASE WHEN k.prediction_bytes IS NOT NULL THEN coalesce(k.answered AND k.prediction_bytes = d.label, false) END AS correct_bytes,
    k.prediction_mutual_info,
    CASE
        WHEN k.prediction_mutual_info IS NOT NULL THEN coalesce(k.answered AND k.prediction_mutual_info = d.label, false)
    END
        AS correct_mutual_info
FROM known AS k JOIN docs AS d USING (benchmark, task, doc_id);

-- stderr: over documents, as lm-eval's. A score is NULL unless what it needs is known of all its documents.
CREATE OR REPLACE VIEW accuracy_norm AS
SELECT
    o.benchmark, o.task, o.model, count(*) AS n,
    CASE WHEN count(o.correct) = count(*) THEN avg(o.correct::INT) END AS acc_norm,
    CASE WHEN count(o.correct) = count(*) THEN stddev_samp(o.correct::INT) / sqrt(count(*)) END AS acc_norm_stderr,
    CASE WHEN count(o.correct_bytes) = count(*) THEN avg(o.correct_bytes::INT) END AS acc_bytes,
    CASE WHEN count(o.correct_bytes) = count(*) THEN stddev_samp(o.correct_bytes::INT) / sqrt(count(*)) END
        AS acc_bytes_stderr,
    CASE WHEN count(o.correct_mutual_info) = count(*) THEN avg(o.correct_mutual_info::INT) END AS acc_mutual_info,
    CASE
        WHEN count(o.correct_mutual_info) = count(*) THEN stddev_samp(o.correct_mutual_info::INT) / sqrt(count(*))
    END AS acc_mutual_info_stderr
FROM outcomes_norm AS o
GROUP BY ALL;
