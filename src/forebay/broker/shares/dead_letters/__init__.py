"""The dead letters of share partitions: what is moved, and where to."""
