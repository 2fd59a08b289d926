"""Batches that were sent for folded partitions: who takes them, and how they get there."""
