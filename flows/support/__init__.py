"""What the flows share: their runs' ends, pages, parameters and progress, and what a server has to know."""
