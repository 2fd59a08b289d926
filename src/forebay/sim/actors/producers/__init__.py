"""Producers: plain, idempotent, transactional, and those of compacted topics."""
