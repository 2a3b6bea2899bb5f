"""Work on a whole warehouse: checks and repairs, corrections, expiry of old snapshots."""
