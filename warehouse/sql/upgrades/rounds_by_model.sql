-- Schema 10: `rounds` names its models, and is no longer in the order of `pool`, which renames have sorted anew.
-- temp.named_then(run_id, then_of): each renamed model's name when its run was written, NULL where that is not known.
-- The old column is renamed first: DuckLake 1.5.5 cannot give a nested column that a transaction adds another name.
ALTER TABLE decisions RENAME COLUMN rounds TO rounds_in_order;
ALTER TABLE decisions ADD COLUMN rounds STRUCT("model" VARCHAR, "round" INT)[];

UPDATE decisions SET rounds = list_transform(list_zip(pool, rounds_in_order), lambda z: {model: z[1], round: z[2]})
WHERE len(pool) = len(rounds_in_order) AND run_id NOT IN (SELECT n.run_id FROM temp.named_then AS n);

UPDATE decisions SET rounds = list_sort(list_transform(
    list_zip(
        list_sort(list_transform(pool, lambda m: {was: coalesce(n.then_of[m], m), is_now: m})), rounds_in_order
    ),
    lambda z: {model: z[1].is_now, round: z[2]}
))
FROM temp.named_then AS n
WHERE decisions.run_id = n.run_id AND len(pool) = len(rounds_in_order) AND n.then_of IS NOT NULL;

ALTER TABLE decisions DROP COLUMN rounds_in_order;
