"""Who judges models by the train documents that are most like a new one."""
