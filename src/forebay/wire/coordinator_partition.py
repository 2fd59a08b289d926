"""Computes the partition of an internal topic for a group or a transactional id, as Kafka does."""

from __future__ import annotations

from functools import lru_cache

_KEYS_REMEMBERED = 256
"""Few: a group id may be long."""


def java_hash(text: str) -> int:
    """Java's String.hashCode: a signed 32-bit number over UTF-16 code units."""
    units = text.encode("utf-16-be")
    value = 0
    for i in range(0, len(units), 2):
        value = (31 * value + (units[i] << 8 | units[i + 1])) & 0xFFFF_FFFF
    return value - 0x1_0000_0000 if value & 0x8000_0000 else value


@lru_cache(_KEYS_REMEMBERED)
def partition_for(key: str, partitions: int) -> int:
    value = abs(java_hash(key))
    return 0 if value == 0x8000_0000 else value % partitions
