SELECT o.model, avg(o.correct::INT) AS accuracy
FROM outcomes AS o
WHERE o.benchmark = 'made-up' AND list_contains(?, o.model)
GROUP BY ALL;
