"""The console's picture of a cluster: taken at intervals, kept for an hour."""
