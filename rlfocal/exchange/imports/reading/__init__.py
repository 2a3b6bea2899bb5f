"""How files of other tools are read, whatever their format."""
