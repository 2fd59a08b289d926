"""What a partition knows of the checksums of batches, as their producers sent them.

In a transaction, a batch that comes under numbers which were used before repeats the earlier one only if it
has the same bytes (`producer_admission.py`). The leader that took the earlier one knows its checksum. Others
have only the batch in the log, which may be stored in another form than it came in: with the broker's time,
without messages that are to be delivered later, or under the codec of its topic. Then its checksum says
nothing. A snapshot of the producers has none.
"""

from __future__ import annotations

from typing import Final

from forebay.wire.batch import LOG_APPEND_TIME, NOTED, BatchHeader

NO_CRC: Final = -1
"""It is not known."""
_CRC_BITS = 32
_CRC_MAX = (1 << _CRC_BITS) - 1


def stored_crc(header: BatchHeader) -> int:
    """What a batch in the log tells: its checksum, and above it the codec under which it must have come."""
    if header.attributes & (LOG_APPEND_TIME | NOTED) or not header.record_count:
        return NO_CRC
    return (header.codec + 1) << _CRC_BITS | header.crc


def has_other_bytes(known: int, header: BatchHeader) -> bool:
    """Whether a batch that came now is known to differ from an earlier one.

    `known`: the checksum that the earlier one came with, `stored_crc` of it, or NO_CRC.
    """
    if known == NO_CRC or (known > _CRC_MAX and known >> _CRC_BITS != header.codec + 1):
        return False
    return known & _CRC_MAX != header.crc
