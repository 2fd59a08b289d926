"""Partitions that take the messages of others, and give them back."""
