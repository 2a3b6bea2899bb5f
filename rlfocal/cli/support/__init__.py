"""Code that commands share: options and their completions, progress, and the list of commands."""
