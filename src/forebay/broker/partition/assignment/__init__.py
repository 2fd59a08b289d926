"""Keeping the partitions of this broker in step with the cluster image."""
