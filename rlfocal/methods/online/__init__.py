"""Methods that learn from each label as it arrives."""
