"""Compaction: which segments are cleaned, and which records of each batch remain."""
