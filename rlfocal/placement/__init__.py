"""Which GPUs of a machine a model runs on: what there is, who holds what, and who comes next."""
