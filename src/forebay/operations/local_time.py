"""Moments for people."""

from __future__ import annotations

from datetime import datetime


def local_time(ms: int) -> str:
    """A moment for people, in the local time of this machine."""
    try:
        return datetime.fromtimestamp(ms / 1000).astimezone().isoformat(" ", "seconds")
    except (ValueError, OverflowError, OSError):
        return "a time beyond the year 9999"
