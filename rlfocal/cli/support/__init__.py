"""Code that commands share: options, progress, the list of commands, completion, and handling of signals."""
