"""Requests about delayed messages, to the leaders of partitions. The client library has none of them."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Self, TypeVar

from forebay.errors import ErrorCode, known_code
from forebay.operations.client import REQUEST_SECONDS, Client, CommandError, join_address, no_topic
from forebay.operations.wire import BrokerConnections, WireConnection, check, error_text
from forebay.wire.messages.alter_delays import IDS_MAX, AlterDelaysRequest, AlterDelaysResponse
from forebay.wire.messages.describe_delays import (
    FROM_THE_FIRST,
    DelayedMessage,
    DescribeDelaysRequest,
    DescribeDelaysResponse,
)
from forebay.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

_PAGE = 500
_RETRY_SECONDS = 0.1
_ID = re.compile(r"(\d{1,9})-(\d{1,18})", re.ASCII)

R = TypeVar("R", DescribeDelaysResponse, AlterDelaysResponse)


class ScheduleId(NamedTuple):
    """A delayed message: its partition, and the offset that its producer was given."""

    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.partition}-{self.offset}"


def schedule_id(text: str) -> ScheduleId:
    """Raises CommandError for text that is no id."""
    match = _ID.fullmatch(text)
    if match is None:
        raise CommandError(
            f"{text!r} is not an id such as 3-1742: `forebay delay list` shows them", exit_code=2
        )
    return ScheduleId(int(match[1]), int(match[2]))


class DelayAdmin:
    """The delayed messages of one topic. Use it with `with`; connections are opened when they are needed."""

    def __init__(self, client: Client, topic: str) -> None:
        self._connections = BrokerConnections(client)
        self._topic = topic
        self._known: set[str] = set()
        """Brokers that serve these requests."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connections.close()

    # -- reading -------------------------------------------------------------------------------------

    def partitions(self) -> list[int]:
        return sorted(self._leaders())

    def pending(self, partition: int) -> int:
        """The number of waiting messages."""
        return self._describe(partition, limit=1).pending

    def messages(self, partition: int, page: int = _PAGE) -> Iterator[DelayedMessage]:
        """All waiting messages, without their values, in the order in which they are due."""
        after_due_ms = after_id = FROM_THE_FIRST
        while True:
            answer = self._describe(
                partition, after_due_ms=after_due_ms, after_id=after_id, limit=min(page, _PAGE)
            )
            yield from answer.messages
            if not answer.more or not answer.messages:
                return
            after_due_ms, after_id = answer.messages[-1].due_ms, answer.messages[-1].id

    def message(self, wanted: ScheduleId) -> DelayedMessage:
        """One waiting message, with its value. Raises CommandError if it does not wait."""
        found = self._describe(wanted.partition, ids=[wanted.offset], values=True).messages
        if not found:
            raise CommandError(f"{wanted} does not wait in {self._topic}: `forebay delay list {self._topic}`")
        return found[0]

    # -- changing ------------------------------------------------------------------------------------

    def alter(self, action: int, ids: Sequence[ScheduleId]) -> dict[ScheduleId, str | None]:
        """Cancel messages or deliver them now, as `action` says. Returns None for each, or why it failed."""
        offsets: dict[int, list[int]] = {}
        for each in ids:
            offsets.setdefault(each.partition, []).append(each.offset)
        outcomes: dict[ScheduleId, str | None] = {}
        for partition, named in offsets.items():
            for first in range(0, len(named), IDS_MAX):
                outcomes |= self._alter(partition, action, named[first : first + IDS_MAX])
        return {each: outcomes[each] for each in ids}

    def _alter(self, partition: int, action: int, offsets: list[int]) -> dict[ScheduleId, str | None]:
        request = AlterDelaysRequest(topic=self._topic, partition=partition, action=action, ids=offsets)
        answer = self._ask_leader(partition, lambda leader: leader.ask(request, AlterDelaysResponse))
        check(answer.error_code, answer.error_message)
        return {ScheduleId(partition, each.id): _problem(each.error_code) for each in answer.results}

    # -- leaders -------------------------------------------------------------------------------------

    def _describe(
        self,
        partition: int,
        *,
        ids: Sequence[int] = (),
        after_due_ms: int = FROM_THE_FIRST,
        after_id: int = FROM_THE_FIRST,
        limit: int = _PAGE,
        values: bool = False,
    ) -> DescribeDelaysResponse:
        request = DescribeDelaysRequest(
            topic=self._topic,
            partition=partition,
            ids=list(ids),
            after_due_ms=after_due_ms,
            after_id=after_id,
            limit=limit,
            values=values,
        )
        answer = self._ask_leader(partition, lambda leader: leader.ask(request, DescribeDelaysResponse))
        check(answer.error_code, answer.error_message)
        return answer

    def _ask_leader(self, partition: int, ask: Callable[[WireConnection], R]) -> R:
        """The answer of the leader. It may be changing, or not ready yet: then ask again for a while."""
        deadline = time.monotonic() + REQUEST_SECONDS
        while True:
            leaders = self._leaders()
            if partition not in leaders:
                raise CommandError(f"topic {self._topic} has no partition {partition}")
            address = leaders[partition]
            answer = None if address is None else ask(self._own(address))
            if answer is not None and not known_code(answer.error_code).retriable:
                return answer
            if time.monotonic() > deadline:
                if answer is None:
                    raise CommandError(f"{self._topic}-{partition} has no leader now: try again later")
                return answer
            time.sleep(_RETRY_SECONDS)

    def _own(self, address: str) -> WireConnection:
        connection = self._connections.at(address)
        if address not in self._known and not connection.serves(DescribeDelaysRequest):
            raise CommandError(f"the broker at {address} knows no delays: is it a Forebay of today?")
        self._known.add(address)
        return connection

    def _leaders(self) -> dict[int, str | None]:
        """The addresses of the leaders by partition; None where there is none now."""
        wanted = MetadataRequest(
            topics=[MetadataRequestTopic(name=self._topic)], allow_auto_topic_creation=False
        )
        answer = self._connections.any().ask(wanted, MetadataResponse)
        (topic,) = answer.topics
        if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise no_topic(self._topic)
        check(topic.error_code, None)
        addresses = {broker.node_id: join_address(broker.host, broker.port) for broker in answer.brokers}
        return {each.partition_index: addresses.get(each.leader_id) for each in topic.partitions}


def _problem(error_code: int) -> str | None:
    if error_code == ErrorCode.NONE:
        return None
    if error_code == ErrorCode.RESOURCE_NOT_FOUND:
        return "does not wait (any more)"
    return error_text(error_code, None)
