"""What every room needs: errors, atomic files, terminal output."""
