-- How columns of today are read from those of older schemas; `warehouse.columns` says from which.

-- Until schema 10 a decision's prediction was a text, of a choice's number or of an answer. Of a benchmark without documents
-- only the predictions tell which: answers are rarely all numbers below 100.
CREATE OR REPLACE TEMP MACRO has_choices(of_benchmark) AS coalesce(
    (SELECT bool_or(d.label IS NOT NULL) FROM warehouse.docs AS d WHERE d.benchmark = of_benchmark),
    (
        SELECT bool_and(regexp_full_match(d.prediction::VARCHAR, '\d\d?')) FROM warehouse.decisions AS d
        WHERE d.benchmark = of_benchmark
    )
);

-- Rounds of schema 7 to 9. A rename may have reordered those of a renamed model: NULL.
CREATE OR REPLACE TEMP MACRO rounds_by_model(pool, rounds) AS
    CASE
        WHEN len(pool) = len(rounds) AND NOT list_has_any(pool, (SELECT coalesce(list(r.new), []) FROM renames AS r))
            THEN list_transform(list_zip(pool, rounds), lambda z: {model: z[1], round: z[2]})
    END;

-- How schemas before 6 named RL-Focal's methods: method 'rl_focal' with a `variant`, `paper[size_penalty=0.6,switch=a>b]`
-- in a study, whose name it did not keep.
CREATE OR REPLACE TEMP MACRO method_of(method, variant) AS
    CASE
        WHEN method <> 'rl_focal' OR variant IS NULL OR starts_with(variant, 'paper') THEN method
        ELSE 'rl_focal_' || regexp_extract(variant, '^[a-z]*')
    END;
CREATE OR REPLACE TEMP MACRO phase_of(phase, variant) AS
    CASE WHEN variant LIKE 'sequential%' AND phase = 'fusion' THEN 'stage' ELSE phase END;
CREATE OR REPLACE TEMP MACRO study_of(variant) AS
    CASE WHEN variant LIKE '%]' THEN 'unknown' END;
CREATE OR REPLACE TEMP MACRO settings_of(variant) AS
    CASE
        WHEN NOT coalesce(variant, '') LIKE '%]' THEN '{}'::JSON
        ELSE to_json(map_from_entries(list_transform(
            string_split(regexp_extract(variant, '\[(.*)\]$', 1, 's'), ','),
            lambda part: (
                split_part(part, '=', 1),
                CASE
                    WHEN NOT contains(part, '=') THEN 'true'::JSON
                    WHEN json_valid(split_part(part, '=', 2)) THEN split_part(part, '=', 2)::JSON
                    ELSE to_json(split_part(part, '=', 2))
                END
            )
        )))
    END;
