"""Work at intervals: flushing, retention, compaction, checkpoints."""
