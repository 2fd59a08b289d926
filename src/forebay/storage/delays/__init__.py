"""The index of a partition's delayed messages."""
