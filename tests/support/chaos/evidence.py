"""What the logs of brokers hold, for a breach that chance may never bring again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from forebay.errors import ProtocolError
from forebay.wire.batch import BatchHeader, split


def numbered_batches(data_dir: Path) -> Iterator[str]:
    """The batches of producers that number them, in each partition of a broker.

    A message that is stored twice is there under the same numbers, if the broker has forgotten them, or under
    others, if its producer began anew.
    """
    for segment in sorted(data_dir.glob("*/*.log")):
        try:
            found = split(segment.read_bytes())
        except ProtocolError as error:
            yield f"{segment.parent.name}: {error}"
            continue
        for _, header in found:
            if header.producer_id >= 0 and not header.is_control:
                yield f"{segment.parent.name} {_described(header)}"


def _described(header: BatchHeader) -> str:
    last = header.base_sequence + header.record_count - 1
    producer = f"producer {header.producer_id} epoch {header.producer_epoch}"
    place = f"@{header.base_offset} leader epoch {header.partition_leader_epoch}"
    return f"{place} {producer} numbers {header.base_sequence} to {last}"
