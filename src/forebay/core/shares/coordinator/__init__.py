"""The share coordinator: the state of share partitions that survives, and the log that holds it."""
