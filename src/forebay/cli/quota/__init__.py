"""Client quotas at the command line."""
