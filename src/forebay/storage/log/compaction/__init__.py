"""Compaction: rewriting sealed segments, and putting the new ones in their place."""
