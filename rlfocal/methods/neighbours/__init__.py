"""Methods that judge models by the train documents most similar to a new one."""
