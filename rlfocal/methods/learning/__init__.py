"""What trained methods share: stacked networks, question features, checkpoints, agents and their Router."""
