"""Cheap models first, dearer ones where those are not sure."""
