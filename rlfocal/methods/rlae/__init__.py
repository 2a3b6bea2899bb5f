"""RLAE: agents that learn weights for all models by reinforcement learning."""
