"""`forebay consume TOPIC`: messages to standard output, without joining a group unless --share names one.

The partitions are assigned by hand and nothing is committed, so looking into a topic never disturbs its
consumers. With --share the messages are taken from a queue (`share_reader.py`). Ctrl-C and a closed pipe are
normal ends: exit code 0.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, BinaryIO

import click

from forebay.cli.client import REQUEST_SECONDS, Client, CommandError, client_options, failed
from forebay.cli.messages.share_reader import read_share
from forebay.operations.messages.message_formats import TOKEN_HELP, Line, compile_format, json_line, line_of
from forebay.operations.messages.positions import (
    POSITION_HELP,
    Beginning,
    End,
    Last,
    Offset,
    Position,
    Time,
    parse_position,
)

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

POLL_SECONDS = 0.2
BATCH_MESSAGES = 500


@click.command()
@click.argument("topic")
@click.option(
    "--from", "start", default="beginning", metavar="WHERE", show_default=True, help=f"{POSITION_HELP}."
)
@click.option(
    "--from-beginning", is_flag=True, help="The same as --from beginning, as Kafka's tools have it."
)
@click.option(
    "--partition",
    "only",
    metavar="N",
    type=click.IntRange(min=0),
    multiple=True,
    help="Only this; may be repeated.",
)
@click.option("-n", "--count", metavar="N", type=click.IntRange(min=1), help="Stop after N messages.")
@click.option("-e", "--exit-at-end", is_flag=True, help="Stop where the topic ended when the command began.")
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="Stop when no message came for this time.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object per message and line.")
@click.option("-f", "--format", "text", metavar="TEXT", help=f"How to print a message: {TOKEN_HELP}.")
@click.option(
    "--read-uncommitted", is_flag=True, help="Also messages of transactions that are open or aborted."
)
@click.option(
    "--share",
    "share_group",
    metavar="GROUP",
    help="Take messages as a member of this share group: each is accepted when it is printed.",
)
@client_options
def consume(
    topic: str,
    start: str,
    from_beginning: bool,
    only: tuple[int, ...],
    count: int | None,
    exit_at_end: bool,
    timeout_s: float | None,
    as_json: bool,
    text: str | None,
    read_uncommitted: bool,
    share_group: str | None,
    client: Client,
) -> None:
    """Print the messages of TOPIC and wait for more; Ctrl-C ends.

    \b
      forebay consume orders --from 5m
      forebay consume orders --exit-at-end --json | jq .value
      forebay consume orders -f '%p %o %k %v\\n'
      forebay consume jobs --share thumbnails -n 1
    """
    if as_json and text is not None:
        raise click.UsageError("--json and --format exclude each other")
    if from_beginning and start != "beginning":
        raise click.UsageError("--from and --from-beginning exclude each other")
    if share_group is not None and (
        start != "beginning" or from_beginning or only or exit_at_end or read_uncommitted
    ):
        raise click.UsageError(
            "--share goes with --count, --timeout, --json and --format only: where a share group begins and "
            "what it may see are its settings share.auto.offset.reset and share.isolation.level"
        )
    try:
        position = parse_position(start, time.time_ns() // 1_000_000)
        writer = json_line if as_json else compile_format(r"%v\n" if text is None else text)
    except CommandError as error:
        raise click.UsageError(str(error)) from None
    if share_group is not None:
        read_share(client, topic, share_group, writer, count=count, timeout_s=timeout_s)
        return
    consumer = client.consumer(_settings(read_uncommitted))
    try:
        starts = _starts(consumer, topic, _chosen(client, consumer, topic, only), position)
        ends = _ends(consumer, starts) if exit_at_end else None
        if ends is not None:
            starts = [place for place in starts if place.partition in ends]
        floor = position.offset if isinstance(position, Offset) else 0
        reader = Reader(consumer, starts, floor=floor, ends=ends, count=count, timeout_s=timeout_s)
        reader.run(writer, sys.stdout.buffer)
    except KeyboardInterrupt:
        return
    finally:
        consumer.close()


def _settings(read_uncommitted: bool) -> dict[str, object]:
    return {
        # The client library insists on a group; without subscription or commit it is never joined.
        "group.id": "forebay-cli",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "earliest",
        "isolation.level": "read_uncommitted" if read_uncommitted else "read_committed",
        "fetch.wait.max.ms": 500,
        # Enough to keep the pipe busy; the default would take a gigabyte of memory for a slow reader.
        "queued.max.messages.kbytes": 16 * 1024,
    }


def _chosen(client: Client, consumer: Consumer, topic: str, only: Sequence[int]) -> list[int]:
    known = client.partitions(consumer, topic)
    for number in only:
        if number not in known:
            raise CommandError(f"topic {topic} has no partition {number}: it has 0 to {known[-1]}")
    return sorted(set(only)) or known


def _starts(
    consumer: Consumer, topic: str, partitions: Iterable[int], position: Position
) -> list[TopicPartition]:
    """Each partition with the offset to begin at."""
    from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, TopicPartition

    places = [TopicPartition(topic, number) for number in partitions]
    if isinstance(position, Time):
        return _at_time(consumer, places, position.timestamp_ms)
    for place in places:
        match position:
            case Beginning():
                place.offset = OFFSET_BEGINNING
            case End():
                place.offset = OFFSET_END
            case Offset(offset):
                # Beyond the end there is nothing to fetch yet, and the broker refuses to wait there.
                low, high = _watermarks(consumer, place)
                place.offset = min(max(low, offset), high)
            case Last(count):
                low, high = _watermarks(consumer, place)
                place.offset = max(low, high - count)
    return places


def _at_time(consumer: Consumer, places: Iterable[TopicPartition], timestamp_ms: int) -> list[TopicPartition]:
    """The first offset at or after the time; the end where there is none."""
    from confluent_kafka import KafkaException

    for place in (asked := list(places)):
        place.offset = timestamp_ms
    try:
        found = consumer.offsets_for_times(asked, timeout=REQUEST_SECONDS)
    except KafkaException as error:
        raise failed(error) from None
    for place in found:
        if place.error is not None:
            raise CommandError(
                f"{place.topic}-{place.partition}: {place.error.str().rstrip('.')} ({place.error.name()})"
            )
    return found


def _ends(consumer: Consumer, starts: Iterable[TopicPartition]) -> dict[int, int]:
    """The present end of each partition; those with nothing to read are left out."""
    from confluent_kafka import OFFSET_BEGINNING, OFFSET_END

    ends = {}
    for place in starts:
        low, high = _watermarks(consumer, place)
        begin = {OFFSET_BEGINNING: low, OFFSET_END: high}.get(place.offset, place.offset)
        if max(begin, low) < high:
            ends[place.partition] = high
    return ends


def _watermarks(consumer: Consumer, place: TopicPartition) -> tuple[int, int]:
    from confluent_kafka import KafkaException

    try:
        low, high = consumer.get_watermark_offsets(place, timeout=REQUEST_SECONDS)
    except KafkaException as error:
        raise failed(error) from None
    return low, high


class Reader:
    """Reads assigned partitions until it has enough: a count, the end, silence, or never."""

    def __init__(
        self,
        consumer: Consumer,
        starts: list[TopicPartition],
        *,
        floor: int,
        ends: dict[int, int] | None,
        count: int | None,
        timeout_s: float | None,
    ) -> None:
        self._consumer = consumer
        self._floor = floor
        self._ends = ends
        self._open = {place.partition for place in starts}
        self._left = count
        self._timeout_s = timeout_s
        consumer.assign(starts)

    def run(self, writer: Callable[[Line], bytes], out: BinaryIO) -> None:
        heard = time.monotonic()
        while self._open and self._left != 0:
            lines = self._poll()
            if lines:
                heard = time.monotonic()
                out.write(b"".join(map(writer, lines)))
                out.flush()
            elif self._timeout_s is not None and time.monotonic() - heard >= self._timeout_s:
                return

    def _poll(self) -> list[Line]:
        """The next messages, at most as many as still wanted."""
        most = BATCH_MESSAGES if self._left is None else min(BATCH_MESSAGES, self._left)
        lines = []
        for message in self._take(most):
            error = message.error()
            if error is not None:
                self._note(error, message)
            elif self._wanted(message):
                lines.append(line_of(message))
        if self._left is not None:
            self._left -= len(lines)
        return lines

    def _take(self, most: int) -> list[Message]:
        """Messages that are there; waits for the first one only, so that a slow topic is shown as it
        comes."""
        first = self._consumer.poll(POLL_SECONDS)
        if first is None:
            return []
        return [first, *(self._consumer.consume(most - 1, 0) if most > 1 else ())]

    def _wanted(self, message: Message) -> bool:
        """True if it lies between floor and end; the last message before the end closes its partition."""
        partition, offset = message.partition() or 0, message.offset() or 0
        if self._ends is None:
            return offset >= self._floor
        end = self._ends[partition]
        if offset >= end - 1:
            self._open.discard(partition)
        return self._floor <= offset < end

    def _note(self, error: KafkaError, message: Message) -> None:
        from confluent_kafka import KafkaError

        if error.code() == KafkaError._PARTITION_EOF:
            # Also how an empty partition ends, and one whose last offsets hold no message (a marker, say).
            if self._ends is not None:
                self._open.discard(message.partition() or 0)
        elif not error.retriable() and error.code() not in (
            KafkaError._ALL_BROKERS_DOWN,
            KafkaError._TRANSPORT,
            # The library asks for the coordinator of the group that it insists on and that nobody joins.
            KafkaError.GROUP_AUTHORIZATION_FAILED,
        ):
            raise CommandError(f"{error.str().rstrip('.')} ({error.name()})")
