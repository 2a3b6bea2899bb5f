-- Upgrades a warehouse of schema 1 to 5: methods get their own names, studies their own columns.
ALTER TABLE evaluations ADD COLUMN study VARCHAR;
ALTER TABLE evaluations ADD COLUMN settings JSON;
UPDATE evaluations SET
    method = method_of(method, variant), study = study_of(variant), settings = settings_of(variant);
ALTER TABLE evaluations DROP COLUMN variant;
UPDATE training_history SET
    phase = phase_of(phase, variant),
    reward = CASE WHEN variant LIKE 'sequential%' THEN NULL ELSE reward END,
    method = method_of(method, variant);
ALTER TABLE training_history DROP COLUMN variant;
