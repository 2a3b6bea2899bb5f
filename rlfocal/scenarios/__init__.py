"""Replays under scenarios: a policy on stored answers that are changed, beside the same policy as
evaluated."""
