"""Explains what trained agents learned: which models they ask, believe and could drop, on test rows."""
