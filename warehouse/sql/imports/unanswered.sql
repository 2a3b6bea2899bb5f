-- How many of the sampled texts hold no answer.
SELECT count(*)
FROM scores AS s
LEFT JOIN canonical AS c USING (answer)
WHERE s.choice_logprobs IS NULL AND c.canonical IS NULL;
