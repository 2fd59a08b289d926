"""Compaction: which segments are cleaned, and what is left of each batch."""
