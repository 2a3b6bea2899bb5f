"""What trained methods share: networks, question features, checkpoints, agents and their drivers for a
Router."""
