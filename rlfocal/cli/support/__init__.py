"""What commands share: options, progress, lists, completion, and how they are stopped."""
