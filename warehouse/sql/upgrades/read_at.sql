-- Schema 11: when the snapshot that a run read was made. Of one that is gone or was another warehouse's, that is not known.
UPDATE evaluations SET read_at = s.snapshot_time
FROM warehouse.snapshots() AS s
WHERE evaluations.snapshot = s.snapshot_id AND s.snapshot_time <= evaluations.created_at;
