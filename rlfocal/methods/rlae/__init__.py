"""RLAE: agents that weigh all models by reinforcement learning."""
