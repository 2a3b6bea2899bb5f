"""What more than one variant needs; it knows none of them."""
