"""Sparse indexes: sorted pairs of (key, value) that say where to begin a search, not where something is.

Both of a segment's indexes are files of fixed-size big-endian entries, laid out as Kafka does:

- `.index`: (offset relative to the segment's base, int32; byte position of the batch that ends with it,
  int32)
- `.timeindex`: (largest timestamp so far, int64; relative offset of the batch that carries it, int32)

New entries gather in memory and are appended to the file a few hundred at a time, so an index takes the same
small amount of memory for any segment. Lookups in the file bisect it down to a block, and the block in
memory. Kafka preallocates index files: trailing zeros are ignored, as an end that was never trimmed.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from struct import Struct

from forebay.storage.disk import File

OFFSET_ENTRY = Struct(">ii")
TIME_ENTRY = Struct(">qi")

FLUSH_ENTRIES = 256
BLOCK_ENTRIES = 256
"""The number of entries that are read at once: a system call takes longer than the bytes."""

Entry = tuple[int, int]


class SparseIndex:
    __slots__ = ("_entry", "_keys", "_last_stored", "_stored", "_values", "file")

    def __init__(self, file: File, entry: Struct) -> None:
        self.file = file
        self._entry = entry
        self._stored = -1  # not looked at yet
        self._last_stored: Entry | None = None  # the last entry in the file, once it is known
        self._keys: array[int] = array("q")
        self._values: array[int] = array("q")

    def __len__(self) -> int:
        return self._load() + len(self._keys)

    @property
    def full_chunk(self) -> bool:
        """True if enough entries have gathered to be worth a write."""
        return len(self._keys) >= FLUSH_ENTRIES

    def append(self, key: int, value: int) -> None:
        self._keys.append(key)
        self._values.append(value)

    def last(self) -> Entry | None:
        if self._keys:
            return self._keys[-1], self._values[-1]
        stored = self._load()
        if stored and self._last_stored is None:
            self._last_stored = self._read(stored - 1)
        return self._last_stored

    def floor(self, key: int) -> Entry | None:
        """The last entry whose key is at most `key`."""
        keys = self._keys
        if keys and keys[0] <= key:
            at = bisect_right(keys, key) - 1
            return keys[at], self._values[at]
        return self._floor_stored(0, key)

    def floor_value(self, value: int) -> Entry | None:
        """The last entry whose value is at most `value` (values grow with the keys)."""
        values = self._values
        if values and values[0] <= value:
            at = bisect_right(values, value) - 1
            return self._keys[at], values[at]
        return self._floor_stored(1, value)

    def next_value(self, value: int) -> Entry | None:
        """The first entry whose value is more than `value`."""
        stored = self._load()
        at = bisect_right(range(stored), value, key=lambda number: self._read(number)[1])
        if at < stored:
            return self._read(at)
        at = bisect_right(self._values, value)
        return (self._keys[at], self._values[at]) if at < len(self._values) else None

    def flush(self) -> None:
        """Append gathered entries to the file. On failure everything stays as it was."""
        if self._keys:
            self._load()
            pack = self._entry.pack
            self.file.appendv([b"".join(map(pack, self._keys, self._values))])
            self._stored += len(self._keys)
            self._last_stored = self._keys[-1], self._values[-1]
            self._forget_gathered()

    def drop_from_value(self, value: int) -> None:
        """Forget gathered entries of `value` and above: their batches were never written."""
        while self._values and self._values[-1] >= value:
            self._keys.pop()
            self._values.pop()

    def cut(self, value: int) -> None:
        """Drop the entries of `value` and above, gathered and stored: their batches were cut off."""
        self.drop_from_value(value)
        kept = bisect_left(range(self._load()), value, key=lambda number: self._read(number)[1])
        if kept < self._stored:
            self.file.truncate(kept * self._entry.size)
            self._stored, self._last_stored = kept, None

    def clear(self) -> None:
        if self.file.size():
            self.file.truncate(0)
        self._stored = 0
        self._last_stored = None
        self._forget_gathered()

    def _forget_gathered(self) -> None:
        del self._keys[:]
        del self._values[:]

    def _floor_stored(self, column: int, target: int) -> Entry | None:
        low, high = 0, self._load()
        while high - low > BLOCK_ENTRIES:
            middle = (low + high) // 2
            if self._read(middle)[column] <= target:
                low = middle
            else:
                high = middle
        return self._floor_in_block(low, high, column, target)

    def _floor_in_block(self, low: int, high: int, column: int, target: int) -> Entry | None:
        """Like `floor`, among few entries that one read brings into memory."""
        size, unpack_from = self._entry.size, self._entry.unpack_from
        block = self.file.pread((high - low) * size, low * size)
        if len(block) < (high - low) * size:
            raise OSError(f"{self.file.path} is shorter than it was")
        at = bisect_right(range(high - low), target, key=lambda n: unpack_from(block, n * size)[column])
        if not at:
            return None
        key, value = unpack_from(block, (at - 1) * size)
        return key, value

    def _read(self, number: int) -> Entry:
        size = self._entry.size
        data = self.file.pread(size, number * size)
        if len(data) < size:
            raise OSError(f"{self.file.path} is shorter than it was")
        key, value = self._entry.unpack(data)
        return key, value

    def _load(self) -> int:
        if self._stored < 0:
            size = self._entry.size
            count = self.file.size() // size
            if count and self._read(count - 1) == (0, 0):
                count = bisect_left(range(count), True, key=lambda number: self._read(number) == (0, 0))
            if count * size != self.file.size():
                self.file.truncate(count * size)
            self._stored = count
        return self._stored
