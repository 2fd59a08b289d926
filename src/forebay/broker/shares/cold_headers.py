"""The headers of batches that are not in memory: a thread reads them first, so that the loop does not wait.

A header may be on each page of a slice, and the device is asked for one after the other. So a slice that is
cold is loaded like one that is sent, and fetches wait for it as they wait for new records.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from forebay.broker.fetch.cold_reads import ColdReads, Outcomes
from forebay.storage.log.log import Log
from forebay.storage.log.segment.segment_list import LogSlice

_BYTES_MAX = 1 << 20
"""What is read at once of a log that is not in memory; one batch may be larger."""


class ColdHeaders:
    """Of one share partition, whose reads all begin at the same offset."""

    def __init__(self, log: Log, cold_reads: ColdReads, loaded: Callable[[], None]) -> None:
        """`loaded` is called when a read can be tried again."""
        self._log = log
        self._cold_reads = cold_reads
        self._on_loaded = loaded
        self._is_loading = False
        self._loaded_from: int | None = None
        """The offset of the slice that was loaded last, until it is read: it is read once though it is cold
        again, or damaged."""

    def read(self, offset: int, max_bytes: int, *, end: int) -> tuple[LogSlice | None, bool]:
        """A slice whose headers can be read at once, and whether all of it may be sent at once.

        None while it is loaded. Raises KafkaError.
        """
        for size in (max_bytes, min(max_bytes, _BYTES_MAX)):
            part = self._log.read(offset, size, upper_offset=end)
            if self._log.is_warm(part):
                return part, True
        if self._loaded_from == offset:
            self._loaded_from = None
            return part, False
        if not self._is_loading:
            self._is_loading = True
            self._cold_reads.load([(self._log.files, part)], partial(self._loaded, offset))
        return None, False

    def _loaded(self, offset: int, _: Outcomes) -> None:
        """What was wrong shows again when the records are sent: their locks then run out, as they should."""
        self._is_loading, self._loaded_from = False, offset
        self._on_loaded()
