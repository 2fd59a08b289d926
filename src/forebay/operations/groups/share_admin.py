"""Requests about share groups, each to the broker that can answer it. The client library has none of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple, Self, TypeVar

from forebay.errors import ErrorCode
from forebay.operations.client import REQUEST_SECONDS, Client, CommandError, join_address
from forebay.operations.groups.offset_reset import NewOffset
from forebay.operations.messages.log_offsets import Place
from forebay.operations.wire import BrokerConnections, WireConnection, check, error_text
from forebay.wire.fields import Request, Response
from forebay.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
)
from forebay.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from forebay.wire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
    DeleteShareGroupOffsetsResponse,
)
from forebay.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
)
from forebay.wire.messages.describe_share_windows import (
    DescribeShareWindowsRequest,
    DescribeShareWindowsResponse,
    ShareWindow,
)
from forebay.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from forebay.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from forebay.wire.messages.metadata import MetadataRequest, MetadataResponse
from forebay.wire.messages.share_group_describe import (
    DescribedGroup,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)

R = TypeVar("R", bound=Response)

_RETRY_SECONDS = 0.1
_MOVING = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    }
)
"""The coordinator is being found, or is loading the group: ask again for a while."""


class Progress(NamedTuple):
    """A share group's progress in a partition."""

    start_offset: int | None
    """The first unfinished record; None before the first fetch of a member has set it."""
    lag: int | None
    problem: str | None = None


class ShareAdmin:
    """Use it with `with`; connections are opened when they are needed."""

    def __init__(self, client: Client) -> None:
        self._connections = BrokerConnections(client)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connections.close()

    # -- reading -------------------------------------------------------------------------------------

    def states(self) -> dict[str, str]:
        """Every share group with its state. Each broker lists the groups that it coordinates."""
        found: dict[str, str] = {}
        for connection in self._brokers():
            answer = self._until_loaded(
                partial(connection.ask, ListGroupsRequest(types_filter=["share"]), ListGroupsResponse),
                lambda answer: [answer.error_code],
            )
            check(answer.error_code, None)
            found |= {group.group_id: group.group_state for group in answer.groups}
        return dict(sorted(found.items()))

    def describe(self, group: str) -> DescribedGroup:
        answer = self._ask_coordinator(
            group,
            ShareGroupDescribeRequest(group_ids=[group]),
            ShareGroupDescribeResponse,
            lambda answer: [each.error_code for each in answer.groups],
        )
        (found,) = answer.groups
        if found.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            raise no_share_group(group)
        check(found.error_code, found.error_message)
        return found

    def progress(self, group: str) -> dict[Place, Progress]:
        """The progress in every partition that the group has begun with."""
        answer = self._ask_coordinator(
            group,
            DescribeShareGroupOffsetsRequest(
                groups=[DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=None)]
            ),
            DescribeShareGroupOffsetsResponse,
            lambda answer: [
                code
                for each in answer.groups
                for code in (each.error_code, *(p.error_code for t in each.topics for p in t.partitions))
            ],
        )
        (found,) = answer.groups
        check(found.error_code, found.error_message)
        return {
            (topic.topic_name, partition.partition_index): Progress(
                None if partition.start_offset < 0 else partition.start_offset,
                None if partition.lag < 0 else partition.lag,
                error_text(partition.error_code, partition.error_message) if partition.error_code else None,
            )
            for topic in sorted(found.topics, key=lambda topic: topic.topic_name)
            for partition in sorted(topic.partitions, key=lambda partition: partition.partition_index)
        }

    def windows(self, group: str) -> dict[Place, ShareWindow]:
        """The delivery state at the leaders of its partitions; nothing for those that are not in use."""
        return {
            (window.topic_name, window.partition_index): window
            for connection in self._brokers()
            if connection.serves(DescribeShareWindowsRequest)
            for window in connection.ask(
                DescribeShareWindowsRequest(group_id=group), DescribeShareWindowsResponse
            ).windows
        }

    # -- changing ------------------------------------------------------------------------------------

    def alter(self, group: str, offsets: Iterable[NewOffset]) -> None:
        """Raises CommandError with a line for each partition that was refused."""
        topics: dict[str, list[AlterShareGroupOffsetsRequestPartition]] = {}
        for each in offsets:
            topics.setdefault(each.topic, []).append(
                AlterShareGroupOffsetsRequestPartition(
                    partition_index=each.partition, start_offset=each.new_offset
                )
            )
        answer = self._ask_coordinator(
            group,
            AlterShareGroupOffsetsRequest(
                group_id=group,
                topics=[
                    AlterShareGroupOffsetsRequestTopic(topic_name=name, partitions=partitions)
                    for name, partitions in topics.items()
                ],
            ),
            AlterShareGroupOffsetsResponse,
            lambda answer: [answer.error_code],
        )
        _check_group(group, answer.error_code, answer.error_message)
        _raise_all(
            f"{topic.topic_name}-{each.partition_index}: {error_text(each.error_code, each.error_message)}"
            for topic in answer.responses
            for each in topic.partitions
            if each.error_code
        )

    def delete_topics(self, group: str, topics: Sequence[str]) -> None:
        """Forget the group's progress in these topics."""
        answer = self._ask_coordinator(
            group,
            DeleteShareGroupOffsetsRequest(
                group_id=group,
                topics=[DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in topics],
            ),
            DeleteShareGroupOffsetsResponse,
            lambda answer: [answer.error_code],
        )
        _check_group(group, answer.error_code, answer.error_message)
        _raise_all(
            f"{each.topic_name}: {error_text(each.error_code, each.error_message)}"
            for each in answer.responses
            if each.error_code
        )

    def delete(self, group: str) -> None:
        """DeleteGroups would delete a group of any kind, so the kind is checked first."""
        self.describe(group)
        answer = self._ask_coordinator(
            group,
            DeleteGroupsRequest(groups_names=[group]),
            DeleteGroupsResponse,
            lambda answer: [each.error_code for each in answer.results],
        )
        (result,) = answer.results
        _check_group(group, result.error_code, None)

    # -- connections ---------------------------------------------------------------------------------

    def _ask_coordinator(
        self, group: str, request: Request, response: type[R], codes: Callable[[R], Iterable[int]]
    ) -> R:
        return self._until_loaded(lambda: self._coordinator(group).ask(request, response), codes)

    def _until_loaded(self, ask: Callable[[], R], codes: Callable[[R], Iterable[int]]) -> R:
        deadline = time.monotonic() + REQUEST_SECONDS
        while True:
            answer = ask()
            if _MOVING.isdisjoint(codes(answer)) or time.monotonic() > deadline:
                return answer
            time.sleep(_RETRY_SECONDS)

    def _coordinator(self, group: str) -> WireConnection:
        answer = self._until_loaded(
            lambda: self._connections.any().ask(
                FindCoordinatorRequest(coordinator_keys=[group]), FindCoordinatorResponse
            ),
            lambda answer: [each.error_code for each in answer.coordinators],
        )
        (found,) = answer.coordinators
        check(found.error_code, found.error_message)
        return self._connections.at(join_address(found.host, found.port))

    def _brokers(self) -> list[WireConnection]:
        answer = self._connections.any().ask(MetadataRequest(topics=[]), MetadataResponse)
        return [self._connections.at(join_address(broker.host, broker.port)) for broker in answer.brokers]


def no_share_group(name: str) -> CommandError:
    return CommandError(
        f"there is no share group {name}: `forebay share list` shows what there is, "
        f"`forebay group list` the groups of other kinds"
    )


def _check_group(group: str, code: int, message: str | None) -> None:
    if code == ErrorCode.NON_EMPTY_GROUP:
        raise CommandError(f"share group {group} has members: stop its consumers first")
    if code == ErrorCode.GROUP_ID_NOT_FOUND:
        raise no_share_group(group)
    check(code, message)


def _raise_all(problems: Iterable[str]) -> None:
    if lines := list(problems):
        raise CommandError("\n".join(lines))
