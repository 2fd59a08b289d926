"""What a partition knows of its producers, and which of their batches it takes."""
