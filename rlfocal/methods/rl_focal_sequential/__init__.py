"""`rl_focal_sequential`, our own method, asks models in turn, and stops when more answers would not pay."""
