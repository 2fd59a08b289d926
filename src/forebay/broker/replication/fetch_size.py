"""How much a follower asks a leader for at a time: no more than its loop can take in at one go.

What an answer costs depends on its batches rather than its bytes. Megabytes of batches with one small message
each would keep the loop for seconds. So the size follows from how large the batches of the last answer were;
it grows in steps, because the next batches may be smaller.
"""

from __future__ import annotations

BATCHES_MAX = 8192
FIRST_BYTES = 512 * 1024


class AnswerSize:
    def __init__(self) -> None:
        self._bytes = FIRST_BYTES

    def limit(self, bytes_max: int) -> int:
        """How many bytes to ask for, at most `bytes_max`."""
        return min(self._bytes, bytes_max)

    def taken(self, size: int, batches: int) -> None:
        """Note the bytes and batches of an answer."""
        if batches:
            self._bytes = min(max(size * BATCHES_MAX // batches, FIRST_BYTES), self._bytes * 2)
