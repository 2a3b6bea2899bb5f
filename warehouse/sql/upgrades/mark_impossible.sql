-- Schema 10: marks partitions that earlier versions committed with impossible scores, so that they are extracted again.
UPDATE extractions SET fault = 'scores that are NaN, infinite or positive'
WHERE (model, benchmark, task) IN (
    SELECT c.model, c.benchmark, c.task FROM choice_logprobs AS c WHERE is_impossible(c)
);
