"""The lag of a group: in messages, and in seconds.

The lag in messages is the distance from the committed offset to the end of the log. The lag in seconds is the
age of the first message that the group has not committed, which only that message itself shows: one message
per lagging partition is read, by a consumer that joins no group and commits nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from forebay.lazy import dataclass
from forebay.operations.client import REQUEST_SECONDS, Client, settle
from forebay.operations.messages.log_offsets import Place, ends_of
from forebay.operations.messages.message_ages import message_ages

if TYPE_CHECKING:
    from confluent_kafka.admin import (
        AdminClient,
        ConsumerGroupDescription,
        ConsumerGroupListing,
        MemberDescription,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLag:
    topic: str
    partition: int
    committed: int | None
    start_offset: int | None
    end_offset: int | None
    lag_seconds: float | None = None

    @property
    def position(self) -> int | None:
        """The next offset of the group: it cannot read messages that were deleted."""
        if self.committed is None or self.start_offset is None:
            return self.committed
        return max(self.committed, self.start_offset)

    @property
    def lag(self) -> int | None:
        if self.position is None or self.end_offset is None:
            return None
        return max(0, self.end_offset - self.position)


def describe_group(admin: AdminClient, name: str) -> ConsumerGroupDescription:
    found: ConsumerGroupDescription = settle(
        admin.describe_consumer_groups([name], request_timeout=REQUEST_SECONDS)[name]
    )
    return found


def group_state(group: ConsumerGroupDescription | ConsumerGroupListing) -> str:
    return word(group.state)


def word(value: Any) -> str:
    """PREPARING_REBALANCING in the client library is PreparingRebalance everywhere else."""
    name = "UNKNOWN" if value is None else str(value.name)
    return "".join(part.capitalize() for part in name.split("_")).replace("Rebalancing", "Rebalance")


def owners_of(found: ConsumerGroupDescription) -> dict[Place, str]:
    """The member that reads each partition now."""
    return {
        (place.topic, place.partition): member.member_id
        for member in found.members
        for place in assigned(member)
    }


def assigned(member: MemberDescription) -> list[Any]:
    return (member.assignment.topic_partitions if member.assignment else None) or []


def committed_offsets(admin: AdminClient, group: str) -> dict[Place, int]:
    from confluent_kafka import ConsumerGroupTopicPartitions

    futures = admin.list_consumer_group_offsets(
        [ConsumerGroupTopicPartitions(group)], request_timeout=REQUEST_SECONDS
    )
    found = settle(futures[group]).topic_partitions or ()
    return {(each.topic, each.partition): each.offset for each in found if each.offset >= 0}


def group_lag(
    client: Client, admin: AdminClient, group: str, owned: Iterable[Place] = ()
) -> list[PartitionLag]:
    """Every partition that the group has committed, and those that its members own now."""
    committed = committed_offsets(admin, group)
    places = sorted({*committed, *owned})
    starts, ends = ends_of(admin, places)
    lags = [
        PartitionLag(
            topic=topic,
            partition=partition,
            committed=committed.get((topic, partition)),
            start_offset=starts.found.get((topic, partition)),
            end_offset=ends.found.get((topic, partition)),
        )
        for topic, partition in places
    ]
    behind = {(each.topic, each.partition): each.position or 0 for each in lags if each.lag}
    ages = message_ages(client, behind)
    return [_with_age(each, ages) for each in lags]


def _with_age(lag: PartitionLag, ages: Mapping[Place, float]) -> PartitionLag:
    age = 0.0 if lag.lag == 0 else ages.get((lag.topic, lag.partition))
    return replace(lag, lag_seconds=age)


def total_lag_seconds(partitions: Sequence[Mapping[str, Any]]) -> float | None:
    """The age of the oldest message that a group waits for: 0 if it waits for none, None if it is unknown."""
    waiting = [each["lag_seconds"] for each in partitions if each["lag"] != 0]
    if any(seconds is None for seconds in waiting) or not partitions:
        return None
    return max(waiting, default=0.0)
