"""Commands about a warehouse as a whole: its health, its history, its corrections, exports."""
