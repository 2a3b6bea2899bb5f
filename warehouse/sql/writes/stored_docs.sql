-- temp.stored: the documents of temp.given's tasks as they stand. Read once: a query of docs takes some 30 ms.
INSERT INTO temp.stored
FROM docs AS d WHERE (d.benchmark, d.task) IN (SELECT DISTINCT n.benchmark, n.task FROM temp.given AS n);
