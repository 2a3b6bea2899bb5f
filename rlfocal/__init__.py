"""A warehouse of what a pool of LLMs answers, and RL-Focal: learn which few to ask and how to fuse them."""

__version__ = "0.1.0"
