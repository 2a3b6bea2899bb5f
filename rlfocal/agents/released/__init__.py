"""Variant `released`: what the published code does, each artefact a switch."""
