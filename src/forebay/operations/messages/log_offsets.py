"""The starts and ends of partitions' logs, and their offsets at a time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from forebay.operations.client import REQUEST_SECONDS, CommandError, error_of

if TYPE_CHECKING:
    from confluent_kafka import KafkaError
    from confluent_kafka.admin import AdminClient

Place = tuple[str, int]
"""A topic and the index of one of its partitions."""


class LogOffsets(NamedTuple):
    """The result of a look-up in the logs."""

    found: dict[Place, int]
    """Without the partitions that have no message at the requested time."""
    problems: dict[Place, KafkaError]
    """Why a partition gave no answer: deleted, for example, or without a leader."""


def log_offsets(admin: AdminClient, places: Iterable[Place], spec: Any) -> LogOffsets:
    from confluent_kafka import KafkaException, TopicPartition

    looked_up = LogOffsets({}, {})
    wanted = {TopicPartition(topic, partition): spec for topic, partition in places}
    if not wanted:
        return looked_up
    for place, future in admin.list_offsets(wanted, request_timeout=REQUEST_SECONDS).items():
        try:
            offset = future.result(timeout=REQUEST_SECONDS * 2).offset
        except KafkaException as error:
            looked_up.problems[place.topic, place.partition] = error_of(error)
            continue
        except TimeoutError:
            raise CommandError("the broker did not answer in time: try again, or look at its log") from None
        if offset >= 0:
            looked_up.found[place.topic, place.partition] = offset
    return looked_up


def ends_of(admin: AdminClient, places: Sequence[Place]) -> tuple[LogOffsets, LogOffsets]:
    """The first offset and the next one to be written, for each partition."""
    from confluent_kafka.admin import OffsetSpec

    starts = log_offsets(admin, places, OffsetSpec.earliest())
    return starts, log_offsets(admin, places, OffsetSpec.latest())
