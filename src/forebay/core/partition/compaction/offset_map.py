"""The latest offset of every key in a range of the log, in bounded memory.

Keys of up to fifteen bytes are kept as they are, longer ones as a hash of sixteen bytes: only a collision of
BLAKE2 makes two keys look the same. When the memory is used up the map ends before the next new key, and the
log is cleaned up to there; the next cleaning does the rest.
"""

from __future__ import annotations

from hashlib import blake2b

NO_OFFSET = -1
ENTRY_BYTES = 192
"""The memory of a key: its bytes object, the offset and its share of a hash table that was just doubled."""

_DIGEST_BYTES = 16


class OffsetMap:
    __slots__ = ("_keys_max", "_offsets", "end_offset")

    def __init__(self, start_offset: int, buffer_bytes: int) -> None:
        self._offsets: dict[bytes, int] = {}
        self._keys_max = max(buffer_bytes // ENTRY_BYTES, 1)
        self.end_offset = start_offset
        """Everything below is in the map, or before its start."""

    def __len__(self) -> int:
        return len(self._offsets)

    def add(self, key: bytes, offset: int) -> bool:
        """Note a message; False when there is no room for its key."""
        short = key if len(key) < _DIGEST_BYTES else blake2b(key, digest_size=_DIGEST_BYTES).digest()
        offsets = self._offsets
        if len(offsets) >= self._keys_max and short not in offsets:
            return False
        offsets[short] = offset
        self.end_offset = offset + 1
        return True

    def raise_known(self, key: bytes, offset: int) -> None:
        """Note a message after the end of the map, if the map has its key."""
        short = key if len(key) < _DIGEST_BYTES else blake2b(key, digest_size=_DIGEST_BYTES).digest()
        if short in self._offsets:
            self._offsets[short] = offset

    def latest(self, key: bytes) -> int:
        short = key if len(key) < _DIGEST_BYTES else blake2b(key, digest_size=_DIGEST_BYTES).digest()
        return self._offsets.get(short, NO_OFFSET)
