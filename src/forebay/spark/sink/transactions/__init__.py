"""Exactly-once writes: all tasks of a batch commit together."""
