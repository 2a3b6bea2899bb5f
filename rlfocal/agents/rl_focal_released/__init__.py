"""What the released code does, each of its artefacts a switch."""
