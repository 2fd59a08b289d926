"""Runs a redrive so that each letter is moved exactly once, however often it is killed and run again.

The messages and the redrive's progress (`progress.py`) are committed in one transaction. Its transactional id
is made from the topic's name, so a new redrive aborts what an earlier one left open, and fences it. Positions
are read after that: letters in committed transactions are moved, all others are not.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

from forebay.client import Producer, ProducerFenced
from forebay.operations.client import Client, CommandError, no_topic
from forebay.operations.dead_letters.letters import Filter
from forebay.operations.dead_letters.originals import Originals
from forebay.operations.dead_letters.positions import committed_by, last_committed, redrive_group
from forebay.operations.dead_letters.progress import NoteTooLongError, Progress
from forebay.operations.dead_letters.reading import bounds, first_since, read_lines, reader_settings
from forebay.operations.dead_letters.redrive_pass import Destinations, Move, Redrive, RedriveReport
from forebay.operations.messages.log_offsets import Place
from forebay.operations.settings import read_configs

if TYPE_CHECKING:
    from confluent_kafka import Consumer, TopicPartition
    from confluent_kafka.admin import AdminClient

MESSAGE_BYTES_MAX = 100_000_000
"""Generous, because the broker's message.max.bytes decides."""


def redrive_letters(
    client: Client,
    topic: str,
    *,
    wanted: Filter,
    limit: int | None,
    include_old: bool,
    to: str | None,
    execute: bool,
) -> RedriveReport:
    """Move letters. Without `execute` nothing is written, and the outcome is what would be done."""
    admin = client.admin()
    metadata = client.metadata(admin)
    partitions = {name: sorted(found.partitions) for name, found in metadata.topics.items()}
    for name in (topic, to):
        if name is not None and name not in partitions:
            raise no_topic(name)
    with ExitStack() as stack:
        consumer = client.consumer(reader_settings(redrive_group(topic)))
        stack.callback(consumer.close)
        producer = stack.enter_context(_producer(client, topic)) if execute else None
        if producer is not None:
            producer.transactions.init()
        places = [(topic, number) for number in partitions[topic]]
        starts, ends = bounds(admin, places)
        progress = (
            committed_by(consumer, topic, partitions[topic])
            if execute
            else last_committed(client, topic, partitions[topic])
        )
        _begin_unknown(progress, starts, _unsure_below(admin, min(metadata.brokers), starts, ends))
        redrive = Redrive(
            wanted=wanted,
            limit=limit,
            include_old=include_old,
            destinations=Destinations(partitions, to),
            progress=progress,
            read_original=stack.enter_context(Originals(client)).read,
            commit=_nothing if producer is None else TransactionalCommit(producer, consumer, topic),
        )
        first = _first_offsets(admin, wanted.since_ms, progress, starts, ends)
        return redrive.run(read_lines(consumer, first, ends))


def _producer(client: Client, topic: str) -> Producer:
    settings = {"log_level": 0, "message.max.bytes": MESSAGE_BYTES_MAX, **client.properties}
    return Producer(
        client.bootstrap,
        delivery="exactly-once",
        transactional_id=redrive_group(topic),
        settings=settings,
    )


def _unsure_below(
    admin: AdminClient, node: int, starts: Mapping[Place, int], ends: Mapping[Place, int]
) -> Mapping[Place, int]:
    """Letters before these offsets are older than a committed position can be."""
    for entry in read_configs(admin, "broker", str(node)):
        if entry["name"] == "offsets.retention.minutes" and entry["value"]:
            now_ms = time.time_ns() // 1_000_000
            return first_since(admin, max(0, now_ms - int(entry["value"]) * 60_000), starts, ends)
    return {}


def _begin_unknown(
    progress: dict[int, Progress], starts: Mapping[Place, int], unsure_below: Mapping[Place, int]
) -> None:
    """The initial progress of partitions from which nothing was moved, or whose position has expired."""
    for place, start in starts.items():
        progress.setdefault(
            place[1], Progress(position=start, read_to=start, unsure_below=unsure_below.get(place, 0))
        )


def _first_offsets(
    admin: AdminClient,
    since_ms: int | None,
    progress: Mapping[int, Progress],
    starts: Mapping[Place, int],
    ends: Mapping[Place, int],
) -> dict[Place, int]:
    """The offsets to begin reading at. Letters that are skipped because they are too old are left."""
    wanted = starts if since_ms is None else first_since(admin, since_ms, starts, ends)
    first = {}
    for place, start in starts.items():
        topic, number = place
        known = progress[number]
        if known.position > ends[place]:
            raise CommandError(
                f"the redrive is at {number}:{known.position} of {topic}, which ends at {ends[place]}; "
                f"if the topic is a new one, `forebay group delete {redrive_group(topic)}` lets it begin anew"
            )
        first[place] = max(known.position, start)
        if wanted[place] > first[place]:
            known.leave(first[place])
            first[place] = wanted[place]
    return first


def _nothing(moves: Sequence[Move], progress: Mapping[int, Progress]) -> None:
    """The commit of a dry run."""


class TransactionalCommit:
    def __init__(self, producer: Producer, consumer: Consumer, topic: str) -> None:
        self._producer = producer
        self._consumer = consumer
        self._topic = topic

    def __call__(self, moves: Sequence[Move], progress: Mapping[int, Progress]) -> None:
        try:
            self._producer.transactions.begin()
            for move in moves:
                self._producer.send_record(move.record)
            offsets = self._offsets({number: progress[number] for number in _partitions(moves)})
            self._producer.transactions.commit((offsets, self._consumer.consumer_group_metadata()))
        except BaseException as error:
            self._producer.roll_back(error)
            if isinstance(error, ProducerFenced):
                raise CommandError(
                    f"another redrive of {self._topic} has begun, and goes on where this one was"
                ) from None
            raise

    def _offsets(self, progress: Mapping[int, Progress]) -> list[TopicPartition]:
        from confluent_kafka import TopicPartition

        offsets = []
        for number, each in progress.items():
            each.advance()
            try:
                note = each.note()
            except NoteTooLongError:
                raise CommandError(
                    f"too many letters were left between those that were moved, after {number}:"
                    f"{each.position}: first move that one and the next ones, without a filter"
                ) from None
            offsets.append(TopicPartition(self._topic, number, each.position, note))
        return offsets


def _partitions(moves: Sequence[Move]) -> list[int]:
    return sorted({move.letter.line.partition for move in moves})
