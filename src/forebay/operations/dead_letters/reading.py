"""Reads a dead letter topic from given offsets to its present end, without joining a group."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from typing import TYPE_CHECKING

from forebay.operations.client import Client, CommandError
from forebay.operations.dead_letters.letters import Filter, Letter, letter_of
from forebay.operations.messages.log_offsets import LogOffsets, Place, ends_of, log_offsets
from forebay.operations.messages.message_formats import Line, line_of

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError
    from confluent_kafka.admin import AdminClient

POLL_SECONDS = 0.2
BATCH_MESSAGES = 500


def reader_settings(group: str = "forebay-cli", *, committed: bool = True) -> dict[str, object]:
    return {
        "group.id": group,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed" if committed else "read_uncommitted",
        "fetch.wait.max.ms": 100,
        "queued.max.messages.kbytes": 16 * 1024,
    }


def places_of(client: Client, admin: AdminClient, topic: str) -> list[Place]:
    return [(topic, number) for number in client.partitions(admin, topic)]


def bounds(admin: AdminClient, places: list[Place]) -> tuple[dict[Place, int], dict[Place, int]]:
    """The first offset of each partition, and the one after its last."""
    starts, ends = ends_of(admin, places)
    return _complete(starts), _complete(ends)


def first_since(
    admin: AdminClient, since_ms: int, starts: Mapping[Place, int], ends: Mapping[Place, int]
) -> dict[Place, int]:
    """The first offset at or after the time; the end where there is none."""
    from confluent_kafka.admin import OffsetSpec

    found = _complete(log_offsets(admin, list(starts), OffsetSpec.for_timestamp(since_ms)))
    return {place: max(found.get(place, ends[place]), start) for place, start in starts.items()}


def _complete(offsets: LogOffsets) -> dict[Place, int]:
    for (topic, partition), error in offsets.problems.items():
        raise CommandError(f"{topic}-{partition}: {error.str().rstrip('.')} ({error.name()})")
    return offsets.found


def read_letters(client: Client, topic: str, wanted: Filter, newest: int | None = None) -> Generator[Letter]:
    """The letters without their contents, which may be large. `newest`: only the last ones by offset."""
    admin = client.admin()
    starts, ends = bounds(admin, places_of(client, admin, topic))
    if wanted.since_ms is not None:
        starts = first_since(admin, wanted.since_ms, starts, ends)
    if newest is not None:
        share = max(1, newest // max(1, len(starts)))
        starts = {place: max(start, ends[place] - share) for place, start in starts.items()}
    consumer = client.consumer(reader_settings())
    try:
        for lines in read_lines(consumer, starts, ends):
            for letter in map(letter_of, lines):
                if letter is not None and wanted.matches(letter):
                    line = letter.line._replace(key=None, value=None, headers=())
                    yield letter._replace(line=line, headers=())
    finally:
        consumer.close()


def read_letter(client: Client, topic: str, partition: int, offset: int) -> Letter:
    """One letter with its contents. Raises CommandError if there is none."""
    line = _read_one(client, topic, partition, offset)
    letter = None if line is None else letter_of(line)
    if letter is None:
        found = "a message that is no dead letter" if line is not None else "no message"
        raise CommandError(
            f"at {partition}:{offset} of {topic} there is {found}: `forebay dead-letter list {topic}`"
        )
    return letter


def _read_one(client: Client, topic: str, partition: int, offset: int) -> Line | None:
    admin = client.admin()
    wanted = (topic, partition)
    if wanted not in places_of(client, admin, topic):
        raise CommandError(f"topic {topic} has no partition {partition}")
    starts, ends = bounds(admin, [wanted])
    if not starts[wanted] <= offset < ends[wanted]:
        return None
    consumer = client.consumer(reader_settings())
    try:
        batches = read_lines(consumer, {wanted: offset}, {wanted: offset + 1})
        return next((line for lines in batches for line in lines), None)
    finally:
        consumer.close()


def read_lines(
    consumer: Consumer, starts: Mapping[Place, int], ends: Mapping[Place, int]
) -> Iterator[list[Line]]:
    """The messages in between, in the order of their offsets within each partition."""
    from confluent_kafka import TopicPartition

    waiting = {place: ends[place] for place, start in starts.items() if start < ends[place]}
    if waiting:
        consumer.assign([TopicPartition(*place, starts[place]) for place in waiting])
    while waiting:
        lines = []
        for message in consumer.consume(BATCH_MESSAGES, POLL_SECONDS):
            place = (message.topic() or "", message.partition() or 0)
            error = message.error()
            if error is not None:
                if is_end(error):
                    waiting.pop(place, None)
            elif place in waiting:
                line = line_of(message)
                if line.offset < waiting[place]:
                    lines.append(line)
                if line.offset >= waiting[place] - 1:
                    del waiting[place]
        if lines:
            yield lines


def is_end(error: KafkaError) -> bool:
    """True if a partition has no more messages. Raises errors that are not temporary."""
    from confluent_kafka import KafkaError

    if error.code() == KafkaError._PARTITION_EOF:
        return True
    if not error.retriable() and error.code() not in (KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT):
        raise CommandError(f"{error.str().rstrip('.')} ({error.name()})")
    return False
