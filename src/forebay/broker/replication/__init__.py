"""Replication: following leaders, the progress of followers, and the in-sync replicas."""
