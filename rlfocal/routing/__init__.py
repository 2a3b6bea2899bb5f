"""One query at a time: what the router passes to trained agents, and what they return."""
