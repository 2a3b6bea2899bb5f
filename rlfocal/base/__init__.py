"""Code that every package uses: errors, atomic files, parameters, and output on a terminal."""
