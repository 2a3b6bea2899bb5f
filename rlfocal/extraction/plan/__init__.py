"""What a regeneration would run, and what it would cost: estimates that state what they assume."""
