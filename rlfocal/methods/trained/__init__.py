"""RL-Focal's methods and `gated_log_linear` as all methods are: their entries, settings, checkpoints and drivers."""
