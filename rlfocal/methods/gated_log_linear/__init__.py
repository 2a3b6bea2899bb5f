"""A question-gated log-linear pool with a learned mask: full information, no reinforcement learning."""
