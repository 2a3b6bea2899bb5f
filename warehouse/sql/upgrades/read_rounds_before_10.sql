-- Rounds of schema 7 to 9, for a reader: by model. A rename may have reordered those of a renamed model: NULL.
CREATE OR REPLACE TEMP VIEW decisions AS
SELECT d.* REPLACE (
    CASE
        WHEN len(d.pool) = len(d.rounds) AND NOT list_has_any(d.pool, (SELECT coalesce(list(r.new), []) FROM renames AS r))
            THEN list_transform(list_zip(d.pool, d.rounds), lambda z: {model: z[1], round: z[2]})
    END AS rounds
)
FROM warehouse.decisions AS d;
