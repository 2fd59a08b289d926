"""Moves records from one log to another exactly once: the mover, and its journal."""
