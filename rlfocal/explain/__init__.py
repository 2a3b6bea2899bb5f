"""What trained agents learned, said to people: whom they ask, believe and could do without, on test rows."""
