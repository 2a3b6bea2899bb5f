"""What if: a policy on stored answers under a scenario, beside the same policy as it was evaluated."""
