"""Writing: the write cycle, the flush, and the checks before a batch is appended."""
