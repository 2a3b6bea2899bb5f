"""What speed is measured against: references that the library does not need."""
