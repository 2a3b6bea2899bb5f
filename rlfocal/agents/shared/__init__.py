"""What more than one variant needs; nothing here depends on a variant."""
