"""The paper's RL-Focal: a Decider that picks pools, a Fusion agent that answers, and their central critic."""
