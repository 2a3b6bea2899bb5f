"""The agents of the released code, with a switch for each of its artefacts."""
