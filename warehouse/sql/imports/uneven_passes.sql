-- Models that answered some documents of a task more often than others.
WITH counted AS (
    SELECT s.benchmark, s.task, s.model, s.doc_id, count(*) AS n
    FROM scores AS s WHERE s.choice_logprobs IS NULL GROUP BY ALL
)
SELECT c.benchmark, c.task, c.model, min(c.n) AS fewest, max(c.n) AS most
FROM counted AS c GROUP BY ALL HAVING fewest < most ORDER BY ALL;
