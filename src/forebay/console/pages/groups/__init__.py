"""Readers: groups, share groups, and pipelines of Spark."""
