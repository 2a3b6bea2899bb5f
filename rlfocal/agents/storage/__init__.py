"""The files of checkpoints, of interrupted training and of TensorBoard: what is in them, read and written."""
