-- Models ($2) alone on the test documents of a benchmark ($1), by falling accuracy.
SELECT s.model, s.n, s.accuracy, s.low, s.high, s.brier, s.log_loss
FROM model_scores($1, split := 'test') AS s WHERE list_contains($2, s.model) ORDER BY s.accuracy DESC, s.model
