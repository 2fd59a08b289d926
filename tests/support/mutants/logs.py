"""Mistakes in reading logs, put into the production code on purpose."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from forebay.broker.partition.opening.opening_again import OpeningAgain
from forebay.storage.log.recovery import log_recovery
from forebay.storage.log.recovery.txn_index_recovery import TxnIndexFiles
from forebay.storage.log.segment import batch_walk
from forebay.storage.log.segment.segment import Segment
from forebay.wire.varint import Bytes


def take_missing_indexes_for_empty_ones(patch: pytest.MonkeyPatch) -> None:
    """Nothing is known of aborted transactions whose index was lost."""
    whole = TxnIndexFiles.complete

    class Careless(TxnIndexFiles):
        def complete(self, segments: Sequence[Segment], believed_to: int) -> tuple[list[Segment], bool]:
            self.must_exist = False
            return whole(self, segments, believed_to)

    patch.setattr(log_recovery, "TxnIndexFiles", Careless)


def never_open_again_what_the_system_refused(patch: pytest.MonkeyPatch) -> None:
    """A partition that could not be opened stays out of use until its broker is started again."""
    patch.setattr(OpeningAgain, "due", lambda *_: [])


def read_batches_unchecked(patch: pytest.MonkeyPatch) -> None:
    """Headers and records are believed, whatever their CRC says."""

    def looks_good(buf: Bytes, position: int, size: int) -> bool:
        return position + size <= len(buf)

    patch.setattr(batch_walk, "crc_ok", looks_good)
