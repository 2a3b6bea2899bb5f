"""A warehouse looked at while it is kept: what the notebook of `rlfocal explore` shows."""
