-- How schemas before 6 named RL-Focal's methods: method 'rl_focal' with a `variant`, `paper[size_penalty=0.6,switch=a>b]`
-- in a study, whose name it did not keep.
CREATE OR REPLACE TEMP MACRO method_of(method, variant) AS
    CASE
        WHEN method <> 'rl_focal' OR variant IS NULL OR starts_with(variant, 'paper') THEN method
        ELSE 'rl_focal_' || regexp_extract(variant, '^[a-z]*')
    END;
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
