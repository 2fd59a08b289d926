"""Share sessions as the share consumers keep them: one per broker, with the delivered records."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field
from typing import NamedTuple

from forebay.broker.ports import Address
from forebay.core.topic_partition import TopicPartition
from forebay.errors import ProtocolError
from forebay.lazy import dataclass
from forebay.sim.models.share_records import ACCEPT, REJECT, UNKNOWN, Hold, Place, RecordId
from forebay.wire.batch import crc_ok, records, split
from forebay.wire.messages.share_fetch import AcknowledgementBatch, PartitionData


class Said(NamedTuple):
    """A member's statement about one record."""

    place: Place
    kind: int

    @property
    def finishes(self) -> bool:
        return self.kind in (ACCEPT, REJECT)


@dataclass(eq=False, slots=True)
class Session:
    address: Address
    epoch: int = 0
    """The epoch of the next request; 0 opens the session."""
    partitions: set[TopicPartition] = field(default_factory=set)
    holds: dict[Place, Hold] = field(default_factory=dict)
    values: dict[Place, bytes] = field(default_factory=dict)
    """The values of the records that it holds."""
    given: dict[Place, RecordId] = field(default_factory=dict)
    """The last record delivered at each place, even if it is no longer held."""
    said: list[Said] = field(default_factory=list)
    """Its last statements."""

    def record(self, place: Place) -> RecordId:
        return self.given.get(place, UNKNOWN)

    def forget(self, place: Place) -> None:
        self.holds.pop(place, None)
        self.values.pop(place, None)


def acknowledgements(
    said: Iterable[Said], *, one_type_each: bool
) -> dict[TopicPartition, list[AcknowledgementBatch]]:
    """Runs of neighbouring offsets, with one type for all of a run, or with a type for each offset."""
    found: dict[TopicPartition, list[AcknowledgementBatch]] = {}
    for (at, offset), kind in sorted(said):
        batches = found.setdefault(at, [])
        last = batches[-1] if batches else None
        is_next = last is not None and last.last_offset + 1 == offset
        if last is None or not is_next or (one_type_each and last.acknowledge_types[0] != kind):
            batches.append(
                AcknowledgementBatch(first_offset=offset, last_offset=offset, acknowledge_types=[kind])
            )
            continue
        last.last_offset = offset
        if not one_type_each:
            last.acknowledge_types.append(kind)
    return found


def delivered_records(data: PartitionData) -> tuple[dict[int, RecordId], bool]:
    """The records of an answer by offset, and True if a damaged disk has hidden others."""
    raw = memoryview(bytes(data.records or b""))  # type: ignore[arg-type]
    found: dict[int, RecordId] = {}
    try:
        batches = split(raw)
    except ProtocolError:
        return found, True
    is_damaged = False
    for start, header in batches:
        if crc_ok(raw, start, header.size):
            batch, epoch = raw[start : start + header.size], header.partition_leader_epoch
            found |= {record.offset: RecordId(epoch, bytes(record.value or b"")) for record in records(batch)}
        else:
            is_damaged = True
    return found, is_damaged
