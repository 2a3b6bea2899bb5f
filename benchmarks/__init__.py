"""Measurements that the docs show. Beside the library, in no wheel."""
