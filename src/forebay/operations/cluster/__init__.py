"""Brokers of a cluster: their state and defaults, reassignments, failovers."""
