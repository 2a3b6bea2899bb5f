"""One query at a time: what the router hands to trained agents, and how they take part."""
