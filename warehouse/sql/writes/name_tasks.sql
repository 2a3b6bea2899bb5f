-- Gives benchmarks and tasks a row as soon as they have documents; what else is known of them comes from who wrote these.
INSERT INTO tasks BY NAME
SELECT c.benchmark, c.task FROM temp.changed AS c ANTI JOIN tasks AS t USING (benchmark, task);

INSERT INTO benchmarks BY NAME
SELECT d.benchmark, CASE WHEN bool_or(d.label IS NOT NULL) THEN 'choices' ELSE 'answers' END AS kind
FROM temp.written AS d ANTI JOIN benchmarks AS b USING (benchmark)
GROUP BY d.benchmark;
