"""A partition's knowledge of the checksums of batches, as their producers sent them.

In a transaction, a batch with sequence numbers that were used before repeats the earlier one only if it has
the same bytes (`producer_admission.py`). The leader that took the earlier one knows its checksum. Other
brokers have only the batch in the log, which may differ from what was sent: with the broker's time, without
delayed messages, or with the codec of its topic. Then its checksum says nothing. A snapshot of the producers
has none.
"""

from __future__ import annotations

from typing import Final

from forebay.wire.batch import LOG_APPEND_TIME, NOTED, BatchHeader

NO_CRC: Final = -1
"""The checksum is not known."""
_CRC_BITS = 32
_CRC_MAX = (1 << _CRC_BITS) - 1


def stored_crc(header: BatchHeader) -> int:
    """The checksum of a batch in the log, and above it the codec with which it must have been sent."""
    if header.attributes & (LOG_APPEND_TIME | NOTED) or not header.record_count:
        return NO_CRC
    return (header.codec + 1) << _CRC_BITS | header.crc


def has_other_bytes(known: int, header: BatchHeader) -> bool:
    """True if a new batch surely differs from an earlier one.

    `known`: the checksum with which the earlier one was sent, its `stored_crc`, or NO_CRC.
    """
    if known == NO_CRC or (known > _CRC_MAX and known >> _CRC_BITS != header.codec + 1):
        return False
    return known & _CRC_MAX != header.crc
