-- Records the current digests of the documents of temp.changed's tasks.
DELETE FROM doc_digests WHERE (benchmark, task) IN (SELECT c.benchmark, c.task FROM temp.changed AS c);

INSERT INTO doc_digests
SELECT d.benchmark, d.task, docs_digest(d) FROM docs AS d
WHERE (d.benchmark, d.task) IN (SELECT c.benchmark, c.task FROM temp.changed AS c)
GROUP BY ALL;
