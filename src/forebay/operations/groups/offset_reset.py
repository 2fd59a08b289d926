"""Plans of offset resets for groups of any kind.

A plan is made from the group's present offsets and both ends of each log; every new offset is clamped to
them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from forebay.operations.client import Client, CommandError
from forebay.operations.messages.log_offsets import LogOffsets, Place, ends_of, log_offsets

if TYPE_CHECKING:
    from confluent_kafka import KafkaError
    from confluent_kafka.admin import AdminClient


class Logs(NamedTuple):
    """The inputs for a new offset."""

    current: Mapping[Place, int]
    """The present offsets of the group."""
    starts: Mapping[Place, int]
    ends: Mapping[Place, int]
    at_time: Mapping[Place, int]
    gone: Set[Place]
    """Partitions that no longer exist: their topic was deleted."""


class NewOffset(NamedTuple):
    topic: str
    partition: int
    current: int | None
    new_offset: int
    lag: int


Target: TypeAlias = Callable[[Logs, Place], int]


def target(name: str, number: int = 0) -> Target:
    """The wanted offset, not yet clamped, for the name of an option: `to_time`, for example."""

    def shifted(logs: Logs, place: Place) -> int:
        # Where nothing was committed, the shift begins at the first message.
        return logs.current.get(place, logs.starts[place]) + number

    targets: dict[str, Target] = {
        "to_earliest": lambda logs, place: logs.starts[place],
        "to_latest": lambda logs, place: logs.ends[place],
        "to_offset": lambda _logs, _place: number,
        "to_time": lambda logs, place: logs.at_time.get(place, logs.ends[place]),
        "shift_by": shifted,
    }
    return targets[name]


def plan_reset(
    admin: AdminClient,
    places: Sequence[Place],
    current: Mapping[Place, int],
    wanted: Target,
    timestamp_ms: int | None = None,
) -> tuple[Logs, list[NewOffset]]:
    """A new offset for each existing partition. `timestamp_ms` fills `Logs.at_time`."""
    logs = _look_at_logs(admin, places, current, timestamp_ms)
    there = (place for place in places if place not in logs.gone)
    return logs, [_new_offset(logs, place, wanted(logs, place)) for place in there]


def chosen_partitions(client: Client, admin: AdminClient, topics: Iterable[str]) -> list[Place]:
    """The partitions that TOPIC and TOPIC:0,1 stand for."""
    chosen: set[Place] = set()
    for text in topics:
        match = re.fullmatch(r"([^:]+)(?::(\d+(?:,\d+)*))?", text)
        if match is None:
            raise CommandError(f"{text!r} is not TOPIC or TOPIC:0,1", exit_code=2)
        known = client.partitions(admin, match[1])
        numbers = [int(number) for number in match[2].split(",")] if match[2] else known
        for number in numbers:
            if number not in known:
                raise CommandError(f"topic {match[1]} has no partition {number}: it has 0 to {known[-1]}")
        chosen |= {(match[1], number) for number in numbers}
    return sorted(chosen)


def _look_at_logs(
    admin: AdminClient, places: Sequence[Place], current: Mapping[Place, int], timestamp_ms: int | None
) -> Logs:
    from confluent_kafka.admin import OffsetSpec

    starts, ends = ends_of(admin, places)
    at_time = LogOffsets({}, {})
    if timestamp_ms is not None:
        at_time = log_offsets(admin, places, OffsetSpec.for_timestamp(timestamp_ms))
    gone = _check(starts.problems | ends.problems | at_time.problems)
    return Logs(current, starts.found, ends.found, at_time.found, gone)


def _check(problems: Mapping[Place, KafkaError]) -> set[Place]:
    """The partitions that no longer exist. Any other problem ends the command: no partial resets."""
    from confluent_kafka import KafkaError

    gone = {place for place, error in problems.items() if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART}
    unknown = [
        f"{topic}-{partition}: {error.str().rstrip('.')} ({error.name()})"
        for (topic, partition), error in sorted(problems.items())
        if (topic, partition) not in gone
    ]
    if unknown:
        raise CommandError(
            "\n".join(
                ["nothing was changed, these partitions cannot be asked for their offsets now:", *unknown]
            )
        )
    return gone


def _new_offset(logs: Logs, place: Place, wanted: int) -> NewOffset:
    new_offset = min(max(wanted, logs.starts[place]), logs.ends[place])
    return NewOffset(*place, logs.current.get(place), new_offset, logs.ends[place] - new_offset)
