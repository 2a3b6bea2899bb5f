"""Who asks all models of a pool, and fuses what they say by weights."""
