"""What is done to a warehouse as a whole: checks and repairs, corrections, letting go of old snapshots."""
