"""Which GPUs of a machine a model runs on: which exist, which are held, and which model comes next."""
