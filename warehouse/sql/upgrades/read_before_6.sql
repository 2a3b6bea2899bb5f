-- What a reader sees of a warehouse of schema 1 to 5 that it may not upgrade.
CREATE OR REPLACE TEMP VIEW evaluations_before_7 AS
SELECT * EXCLUDE (variant) REPLACE (method_of(method, variant) AS method),
    study_of(variant) AS study, settings_of(variant) AS settings
FROM warehouse.evaluations;
CREATE OR REPLACE TEMP VIEW training_history AS
SELECT * EXCLUDE (variant) REPLACE (
    method_of(method, variant) AS method,
    CASE WHEN variant LIKE 'sequential%' AND phase = 'fusion' THEN 'stage' ELSE phase END AS phase
)
FROM warehouse.training_history;
