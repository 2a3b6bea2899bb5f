"""Filling the warehouse: which partitions it lacks, one process a model, each partition committed whole."""
