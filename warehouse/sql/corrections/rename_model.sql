-- Every table that names a model, but for past runs, which stay as they were.
UPDATE models SET model = $new WHERE model = $old;
UPDATE choice_logprobs SET model = $new WHERE model = $old;
UPDATE answer_passes SET model = $new WHERE model = $old;
UPDATE extractions SET model = $new WHERE model = $old;
