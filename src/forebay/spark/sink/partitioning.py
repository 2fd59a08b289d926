"""Which partition a row goes to: the one it names, or its key's, or the one in turn.

Keys are hashed as Java's producer hashes them (murmur2), so that rows written by Spark and messages sent by
any other client meet in the same partition. Rows without a key stick to one partition for as long as a
round of encoding lasts, which makes large batches, and move on with the next; tasks begin at different ones.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from forebay.errors import ForebayError
from forebay.spark.arrow.arrays import numbers, valid

Partitions = npt.NDArray[np.int64]

_SEED = 0x9747B28C
_M = np.uint32(0x5BD1E995)
_LONG_KEY_BYTES = 256
"""Longer keys are hashed one by one: in step with the others, each would cost a pass over arrays per word."""


class Partitioner:
    """For one topic and one task."""

    def __init__(self, topic: str, partitions: int, first: int) -> None:
        self._topic = topic
        self.count = partitions
        self._sticky = first % partitions

    def assign(self, key: pa.Array, wanted: pa.Array | None) -> Partitions:
        assigned = self._by_key(key)
        if wanted is not None and wanted.null_count < len(wanted):
            named = valid(wanted)
            given = numbers(wanted, np.int32)
            self._check(given[named])
            assigned = np.where(named, given, assigned)
        self._sticky = (self._sticky + 1) % self.count
        return assigned

    def _by_key(self, key: pa.Array) -> Partitions:
        assigned = np.full(len(key), self._sticky, np.int64)
        if key.null_count < len(key):
            hashes = murmur2(key.drop_null()) & np.uint32(0x7FFFFFFF)
            assigned[valid(key)] = hashes % np.uint32(self.count)
        return assigned

    def _check(self, given: npt.NDArray[np.int32]) -> None:
        lowest, highest = int(given.min()), int(given.max())
        if lowest < 0 or highest >= self.count:
            wrong = lowest if lowest < 0 else highest
            raise ForebayError(
                f"a row asks for partition {wrong} of topic {self._topic}, which has {self.count}:"
                " the column `partition` must be null or from 0 to one less"
            )


def murmur2(keys: pa.Array) -> npt.NDArray[np.uint32]:
    """The hash of each binary key; none of them may be null."""
    offsets = np.frombuffer(keys.buffers()[1], np.int32)[keys.offset : keys.offset + len(keys) + 1]
    starts, lengths = offsets[:-1].astype(np.int64), np.diff(offsets).astype(np.int64)
    data = np.frombuffer(keys.buffers()[2] or b"", np.uint8)
    hashed = np.empty(len(keys), np.uint32)
    short = lengths <= _LONG_KEY_BYTES
    hashed[short] = _hash_in_step(data, starts[short], lengths[short])
    for n in np.flatnonzero(~short).tolist():
        hashed[n] = _hash_one(data[starts[n] : starts[n] + lengths[n]].tobytes())
    return hashed


def _hash_in_step(
    data: npt.NDArray[np.uint8], starts: Partitions, lengths: Partitions
) -> npt.NDArray[np.uint32]:
    hashed = np.uint32(_SEED) ^ lengths.astype(np.uint32)
    words = lengths // 4
    for n in range(int(words.max(initial=0))):
        rows = np.flatnonzero(words > n)
        word = _word(data, starts[rows] + 4 * n) * _M
        word = (word ^ (word >> np.uint32(24))) * _M
        hashed[rows] = (hashed[rows] * _M) ^ word
    tails, rest = starts + 4 * words, lengths % 4
    for n in (2, 1, 0):
        rows = np.flatnonzero(rest > n)
        hashed[rows] ^= data[tails[rows] + n].astype(np.uint32) << np.uint32(8 * n)
    rows = np.flatnonzero(rest)
    hashed[rows] *= _M
    hashed = (hashed ^ (hashed >> np.uint32(13))) * _M
    return hashed ^ (hashed >> np.uint32(15))


def _word(data: npt.NDArray[np.uint8], position: Partitions) -> npt.NDArray[np.uint32]:
    word = data[position].astype(np.uint32)
    for n in (1, 2, 3):
        word |= data[position + n].astype(np.uint32) << np.uint32(8 * n)
    return word


def _hash_one(key: bytes) -> int:
    mask, m = 0xFFFFFFFF, int(_M)
    hashed = _SEED ^ len(key)
    whole = len(key) & ~3
    for word in np.frombuffer(key[:whole], "<u4").tolist():
        word = word * m & mask
        word = (word ^ word >> 24) * m & mask
        hashed = (hashed * m & mask) ^ word
    if rest := key[whole:]:
        hashed = (hashed ^ int.from_bytes(rest, "little")) * m & mask
    hashed = (hashed ^ hashed >> 13) * m & mask
    return hashed ^ hashed >> 15
