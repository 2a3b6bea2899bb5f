-- The partitions of which a commit wrote or deleted answers.
SELECT c.model, c.benchmark, c.task
FROM warehouse.table_changes('choice_logprobs', $snapshot, $snapshot) AS c
UNION
SELECT p.model, p.benchmark, p.task
FROM warehouse.table_changes('answer_passes', $snapshot, $snapshot) AS p;
