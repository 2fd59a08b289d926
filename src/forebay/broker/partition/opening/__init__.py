"""Opening partitions: in which order, in which role, and what waits for it."""
