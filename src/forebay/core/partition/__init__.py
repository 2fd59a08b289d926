"""Decisions about one partition: admission, producers, in-sync replicas, retention, compaction."""
