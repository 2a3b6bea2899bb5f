"""Replays of a policy under scenarios, on changed stored answers, beside the same policy as evaluated."""
