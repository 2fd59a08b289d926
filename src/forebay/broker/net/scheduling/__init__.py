"""Sharing the loop between connections: turns, slices of time, and steps that are watched."""
