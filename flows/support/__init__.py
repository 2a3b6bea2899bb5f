"""What the flows share: how runs end, pages, parameters, progress, and the set-up of a server."""
