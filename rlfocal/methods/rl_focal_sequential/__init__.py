"""Ours: asks in turn, and stops when more answers would not pay."""
