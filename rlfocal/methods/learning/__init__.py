"""Code that the trained methods share: networks, question features, checkpoints, agents and drivers."""
