"""What runs the models: one module per backend, and what they share."""
