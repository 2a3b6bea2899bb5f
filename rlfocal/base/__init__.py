"""What every package needs: errors, atomic files, terminal output."""
