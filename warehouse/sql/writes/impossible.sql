-- Whether a row of choice_logprobs, or of traces, holds a score that no model can have given, as warehouse/alignment.py defines it. Scores
-- without tokens were imported: they may have any additive constant.
CREATE OR REPLACE TEMP MACRO is_impossible(r) AS
    coalesce(NOT isfinite(r.logprob), true) OR coalesce(list_max(r.token_logprobs) > 1e-6, false)
    OR coalesce(NOT isfinite(list_sum(r.token_logprobs)), false);

CREATE OR REPLACE TEMP MACRO is_impossible_trace(r) AS
    coalesce(list_max(flatten(r.token_logprobs)) > 1e-6, false)
    OR coalesce(NOT isfinite(list_sum(flatten(r.token_logprobs))), false);
