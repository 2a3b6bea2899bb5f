-- Every table that names a model, past runs included.
UPDATE models SET model = $new WHERE model = $old;
UPDATE choice_logprobs SET model = $new WHERE model = $old;
UPDATE answer_passes SET model = $new WHERE model = $old;
UPDATE traces SET model = $new WHERE model = $old;
UPDATE extractions SET model = $new WHERE model = $old;
UPDATE evaluations
SET models = list_sort(list_append(list_filter(models, lambda m: m <> $old), $new))
WHERE list_contains(models, $old);
UPDATE evaluations SET method = 'single:' || $new WHERE method = 'single:' || $old;
UPDATE decisions
SET
    pool = list_sort(list_append(list_filter(pool, lambda m: m <> $old), $new)),
    rounds = list_sort(list_transform(
        rounds, lambda r: {model: CASE WHEN r.model = $old THEN $new ELSE r.model END, round: r.round}
    ))
WHERE list_contains(pool, $old);
UPDATE prompts SET model = $new WHERE model = $old;
INSERT INTO renames VALUES ($old, $new, now());
