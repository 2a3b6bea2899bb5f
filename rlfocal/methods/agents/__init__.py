"""What the trained agents share: networks, optimisers, checkpoint files; nothing depends on one of them."""
