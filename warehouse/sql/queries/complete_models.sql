-- The models that answered every document of a benchmark.
SELECT model FROM outcomes WHERE benchmark = ? GROUP BY model
HAVING count(*) = (SELECT count(*) FROM docs WHERE benchmark = ?)
