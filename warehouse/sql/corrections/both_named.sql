-- A benchmark on which past runs had models of both names.
SELECT e.benchmark FROM evaluations AS e WHERE list_has_all(e.models, [$old, $new]) LIMIT 1;
