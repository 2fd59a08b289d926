"""Access rules at the command line."""
