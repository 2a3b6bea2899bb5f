"""Benchmarks: one command, one run, ratios against a named reference."""
