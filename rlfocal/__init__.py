"""rlfocal: a warehouse of what a pool of LLMs answers, and RL-Focal, which learns whom to ask and how to fuse."""

__version__ = "0.1.0"
