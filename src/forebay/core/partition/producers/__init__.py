"""The producers as a partition knows them, and which of their batches it takes."""
