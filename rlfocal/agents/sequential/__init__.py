"""The variant `sequential`: ask few models first, go on only where more answers are worth their price."""
