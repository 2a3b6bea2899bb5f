"""Serving trained agents between an application and its models."""
