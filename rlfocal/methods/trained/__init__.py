"""What makes methods of the trained agents: entries, settings, checkpoints and drivers."""
