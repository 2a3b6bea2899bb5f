-- Every table that names a model, past runs included.
UPDATE models SET model = $new WHERE model = $old;
UPDATE choice_logprobs SET model = $new WHERE model = $old;
UPDATE answer_passes SET model = $new WHERE model = $old;
UPDATE extractions SET model = $new WHERE model = $old;
UPDATE evaluations
SET models = list_sort(list_append(list_filter(models, lambda m: m <> $old), $new))
WHERE list_contains(models, $old);
UPDATE evaluations SET method = 'single:' || $new WHERE method = 'single:' || $old;
UPDATE decisions
SET
    pool = list_sort(list_append(list_filter(pool, lambda m: m <> $old), $new)),
    rounds = map_from_entries(list_transform(
        map_entries(rounds), lambda e: {key: CASE WHEN e.key = $old THEN $new ELSE e.key END, value: e.value}
    ))
WHERE list_contains(pool, $old);
UPDATE prompts SET model = $new WHERE model = $old;
INSERT INTO renames VALUES ($old, $new, now());
