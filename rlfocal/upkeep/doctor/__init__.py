"""What is broken or worth knowing about a warehouse and a Prefect server, and how to fix it."""
