-- Every run with decisions: the models that these name, when it was last asked for, and the snapshot that it read.
WITH named AS (
    SELECT d.run_id, list_distinct(flatten(list(d.pool))) AS models FROM decisions AS d GROUP BY d.run_id
)
SELECT n.run_id, n.models, any_value(e.created_at), any_value(e.snapshot)
FROM named AS n LEFT JOIN evaluations AS e ON e.run_id = n.run_id AND e.task = '*'
GROUP BY n.run_id, n.models;
