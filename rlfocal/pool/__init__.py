"""Pools: sets of models, and the benchmarks that they answer. Both are values that are read from YAML."""

from rlfocal.pool.files import (
    add_to_pool,
    find_pool,
    is_shipped,
    load_benchmarks,
    load_entry,
    load_pool,
    remove_from_pool,
)
from rlfocal.pool.specs import Benchmark, ModelSpec, PoolSpec

__all__ = [
    "Benchmark",
    "ModelSpec",
    "PoolSpec",
    "add_to_pool",
    "find_pool",
    "is_shipped",
    "load_benchmarks",
    "load_entry",
    "load_pool",
    "remove_from_pool",
]
