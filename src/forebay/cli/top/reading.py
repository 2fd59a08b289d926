"""Asks all brokers what `forebay top` shows: a few requests to each, however many topics there are.

A broker that does not answer, or refuses a request, leaves its part out; the others are shown.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace

from forebay.cli.client import Client, CommandError
from forebay.cli.top.snapshot import Disk, GroupSeen, Snapshot
from forebay.core.cluster.image import ClusterImage
from forebay.core.cluster.partition_state import NO_LEADER
from forebay.operations.cluster.cluster_state import (
    broker_loads,
    moving,
    read_image,
    states,
    under_replicated,
)
from forebay.operations.messages.log_offsets import Place
from forebay.operations.wire import WireConnection
from forebay.wire.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from forebay.wire.messages.describe_positions import (
    DescribePositionsRequest,
    DescribePositionsResponse,
    PositionsPartition,
    PositionsTopic,
)
from forebay.wire.messages.describe_remote_logs import (
    DescribedRemoteLog,
    DescribeRemoteLogsRequest,
    DescribeRemoteLogsResponse,
)
from forebay.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
)
from forebay.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from forebay.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)

_SHARE = "share"


class Reader:
    """Use it with `with`; connections are kept between snapshots."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._opened: dict[str, WireConnection] = {}
        """By address."""

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        for address in list(self._opened):
            self._close(address)

    def read(self) -> Snapshot:
        """Raises CommandError if no broker answers at all."""
        asked = _Asked(self._image())
        for load in asked.brokers:
            if load.alive:
                self._ask(asked, load.id, load.address)
        asked.find_ages()
        return asked.snapshot()

    def _image(self) -> ClusterImage:
        """From a broker that was asked before, or from the first of the client's addresses that answers."""
        for address in list(self._opened):
            try:
                return read_image(self._opened[address])
            except CommandError:
                self._close(address)
        with WireConnection.open(self._client) as connection:
            return read_image(connection)

    def _ask(self, asked: _Asked, node: int, address: str) -> None:
        try:
            if address not in self._opened:
                self._opened[address] = WireConnection.open(replace(self._client, bootstrap=address))
            asked.ask(node, self._opened[address])
        except CommandError:
            asked.silent.add(node)
            self._close(address)

    def _close(self, address: str) -> None:
        connection = self._opened.pop(address, None)
        if connection is not None:
            connection.close()


class _Asked:
    """The answers collected for one snapshot."""

    def __init__(self, image: ClusterImage) -> None:
        self._image = image
        self.brokers = broker_loads(image)
        self._names = {topic.topic_id: name for name, topic in image.topics.items()}
        self._leaders = {(name, state.index): state.leader for name, state in states(image)}
        self._connections: dict[int, WireConnection] = {}
        self._ends: dict[Place, int] = {}
        self._starts: dict[Place, int] = {}
        self._disks: dict[int, Disk] = {}
        self._groups: dict[str, GroupSeen] = {}
        self._remote_logs: list[DescribedRemoteLog] = []
        self._ages: dict[tuple[Place, int], float] = {}
        """By partition and position, in seconds."""
        self.silent: set[int] = set()

    def ask(self, node: int, connection: WireConnection) -> None:
        """Raises CommandError if the broker does not answer."""
        led = [at for at, leader in self._leaders.items() if leader == node]
        if not connection.serves(DescribePositionsRequest):
            raise CommandError("it is not a Forebay of today")
        self._positions(connection, {at: [] for at in led})
        self._connections[node] = connection
        self._disk(node, connection)
        self._add_remote_logs(connection)
        self._add_groups(connection)

    def _positions(self, connection: WireConnection, wanted: Mapping[Place, list[int]]) -> None:
        topics: dict[str, PositionsTopic] = {}
        for (name, index), positions in wanted.items():
            partition = PositionsPartition(partition_index=index, positions=positions)
            topics.setdefault(name, PositionsTopic(name=name)).partitions.append(partition)
        request = DescribePositionsRequest(topics=list(topics.values()))
        answer, now_ms = connection.ask(request, DescribePositionsResponse), time.time() * 1000
        for topic in answer.topics:
            for each in topic.partitions:
                at = (topic.name, each.partition_index)
                if each.error_code:
                    continue
                self._starts[at], self._ends[at] = each.start_offset, each.end_offset
                for position, timestamp in zip(wanted[at], each.timestamps, strict=True):
                    if timestamp >= 0:
                        self._ages[at, position] = max(now_ms - timestamp, 0.0) / 1000

    def _disk(self, node: int, connection: WireConnection) -> None:
        answer = connection.ask(DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse)
        for each in answer.results:
            if not each.error_code:
                sizes = {topic.name: sum(p.partition_size for p in topic.partitions) for topic in each.topics}
                self._disks[node] = Disk(
                    total_bytes=each.total_bytes, free_bytes=each.usable_bytes, topic_bytes=sizes
                )

    def _add_remote_logs(self, connection: WireConnection) -> None:
        """The tiered partitions that a broker leads; none without the right Describe on the cluster."""
        if connection.serves(DescribeRemoteLogsRequest):
            answer = connection.ask(DescribeRemoteLogsRequest(), DescribeRemoteLogsResponse)
            self._remote_logs += answer.partitions

    # -- groups ----------------------------------------------------------------------------------------

    def _add_groups(self, connection: WireConnection) -> None:
        """Of those that a broker coordinates."""
        listed = connection.ask(ListGroupsRequest(), ListGroupsResponse).groups
        shares = [group for group in listed if group.group_type.lower() == _SHARE]
        others = [group for group in listed if group.group_type.lower() != _SHARE]
        for group in listed:
            name, kind = group.group_id, group.group_type.lower()
            self._groups[name] = GroupSeen(name=name, kind=kind, state=group.group_state)
        if others:
            for name, positions in self._committed(connection, others).items():
                self._groups[name] = replace(self._groups[name], positions=positions)
        if shares:
            self._add_share_offsets(connection, shares)

    def _committed(
        self, connection: WireConnection, groups: Iterable[ListedGroup]
    ) -> dict[str, dict[Place, int]]:
        wanted = [OffsetFetchRequestGroup(group_id=group.group_id, topics=None) for group in groups]
        answer = connection.ask(OffsetFetchRequest(groups=wanted), OffsetFetchResponse)
        return {
            group.group_id: {
                (
                    topic.name or self._names.get(topic.topic_id, ""),
                    each.partition_index,
                ): each.committed_offset
                for topic in group.topics
                for each in topic.partitions
                if each.committed_offset >= 0
            }
            for group in answer.groups
        }

    def _add_share_offsets(self, connection: WireConnection, groups: Iterable[ListedGroup]) -> None:
        wanted = [
            DescribeShareGroupOffsetsRequestGroup(group_id=each.group_id, topics=None) for each in groups
        ]
        request = DescribeShareGroupOffsetsRequest(groups=wanted)
        for group in connection.ask(request, DescribeShareGroupOffsetsResponse).groups:
            found = {
                (topic.topic_name, each.partition_index): each
                for topic in group.topics
                for each in topic.partitions
                if each.start_offset >= 0
            }
            self._groups[group.group_id] = replace(
                self._groups[group.group_id],
                positions={at: each.start_offset for at, each in found.items()},
                lag={at: each.lag for at, each in found.items() if each.lag > 0},
            )

    def find_ages(self) -> None:
        """Look up how old the next messages of groups are, once all ends are known."""
        by_leader: dict[int, dict[Place, list[int]]] = {}
        for group in self._groups.values():
            for at, position in group.positions.items():
                if self._lag(at, position):
                    wanted = by_leader.setdefault(self._leaders.get(at, NO_LEADER), {})
                    wanted.setdefault(at, []).append(position)
        for node, positions in by_leader.items():
            if node in self._connections:
                with contextlib.suppress(CommandError):
                    self._positions(self._connections[node], positions)

    def _lag(self, at: Place, position: int) -> int | None:
        end = self._ends.get(at)
        return None if end is None else max(end - max(position, self._starts[at]), 0)

    def _with_lag(self, group: GroupSeen) -> GroupSeen:
        lag = group.lag  # which share groups know themselves: some messages behind the first are finished
        if group.kind != _SHARE:
            lag = {
                at: found for at, position in group.positions.items() if (found := self._lag(at, position))
            }
        ages = [self._ages.get((at, group.positions[at])) for at in lag]
        known = [age for age in ages if age is not None]
        is_known = len(known) == len(ages) and all(at in self._ends for at in group.positions)
        return replace(group, lag=lag, seconds=max(known, default=0.0) if is_known else None)

    def snapshot(self) -> Snapshot:
        image = self._image
        return Snapshot(
            at_s=time.monotonic(),
            brokers=self.brokers,
            leaders=self._leaders,
            ends=self._ends,
            disks=self._disks,
            remote_logs=self._remote_logs,
            groups={name: self._with_lag(group) for name, group in self._groups.items()},
            silent=frozenset(self.silent),
            leaderless=sum(leader == NO_LEADER for leader in self._leaders.values()),
            under_replicated=len(under_replicated(image)),
            moving=len(moving(image)),
        )
