"""Tiered storage: what is copied, what is deleted, and which history counts. Pure."""
