"""The log of one partition on disk."""
