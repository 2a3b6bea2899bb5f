"""Code that the flows share: final states, artifacts, parameters, progress, and the server."""
