"""One look at a cluster: few requests, each of them for everything that one broker knows.

Metadata from any broker; from each leader the ends of its partitions; from each broker the groups that it
coordinates, and their offsets. Sizes on disk are asked for less often. A user without a right gets an answer
with less in it; what was refused is named in the picture.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

from forebay.console.watch.snapshot import BrokerSeen, GroupSeen, PartitionSeen, Place, Snapshot, TopicSeen
from forebay.errors import ErrorCode
from forebay.operations.client import CommandError
from forebay.operations.wire import BrokerConnections, WireConnection
from forebay.wire.fields import Request, Response
from forebay.wire.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from forebay.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
)
from forebay.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from forebay.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from forebay.wire.messages.metadata import MetadataRequest, MetadataResponse
from forebay.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)

R = TypeVar("R", bound=Response)

EARLIEST, LATEST = -2, -1
_SHARE = "share"
_BY_NAME_VERSION = 9
"""The last version of OffsetFetch that names topics."""
_SLOWLY_SECONDS = 15.0
_RATE_SECONDS_MIN = 0.5


class Sampler:
    """Takes the pictures of one cluster, one after the other, with connections that it keeps."""

    def __init__(self, connections: BrokerConnections) -> None:
        self._connections = connections
        self._before: Snapshot | None = None
        self._sizes: dict[tuple[int, str, int], int] = {}
        self._disks: dict[int, tuple[int, int | None, int | None]] = {}
        self._sizes_refused = False
        self._starts: dict[tuple[str, int], int] = {}
        """By the id of the topic: one of the same name may begin elsewhere."""
        self._slowly_at = -math.inf
        """When that was asked for which changes slowly: sizes, and where logs begin."""

    def look(self, now_s: float) -> Snapshot:
        """Raises CommandError if no broker answers."""
        began = time.monotonic()
        metadata = self._connections.any().ask(
            MetadataRequest(topics=None, allow_auto_topic_creation=False), MetadataResponse
        )
        metadata_s = time.monotonic() - began
        brokers = {
            each.node_id: BrokerSeen(id=each.node_id, host=each.host, port=each.port, rack=each.rack)
            for each in metadata.brokers
        }
        hidden: set[str] = set()
        silent: set[int] = set()
        asking = _Asking(self._connections, brokers, silent)
        topics = _topics_of(metadata)
        slowly = began - self._slowly_at >= _SLOWLY_SECONDS
        if slowly:
            self._slowly_at = began
            self._starts.clear()
        ends, starts = _log_ends(asking, topics, LATEST), self._log_starts(asking, topics)
        found = _groups(asking, ends, starts, hidden)
        groups = dict(sorted({**self._remembered(silent), **found}.items()))
        if slowly:
            self._read_sizes(asking)
        if self._sizes_refused:
            hidden.add("sizes on disk: the right Describe on the cluster is missing")
        seen = {name: self._measured(topic, starts, ends, now_s) for name, topic in sorted(topics.items())}
        picture = Snapshot(
            time_s=now_s,
            number=1 if self._before is None else self._before.number + 1,
            cluster_id=metadata.cluster_id or "",
            controller=metadata.controller_id,
            brokers=tuple(self._with_disk(each, silent) for _, each in sorted(brokers.items())),
            topics=seen,
            groups=groups,
            readers=_readers(groups.values()),
            topic_lags=_topic_lags(groups.values()),
            took_s=metadata_s + asking.waited_s,
            hidden=tuple(sorted(hidden)),
        )
        self._before = picture
        return picture

    def close(self) -> None:
        self._connections.close()

    def _remembered(self, silent: set[int]) -> dict[str, GroupSeen]:
        """The groups of the picture before whose coordinators did not answer now: they have not gone."""
        if self._before is None or not silent:
            return {}
        return {name: group for name, group in self._before.groups.items() if group.coordinator in silent}

    def _measured(
        self, topic: TopicSeen, starts: Mapping[Place, int], ends: Mapping[Place, int], now_s: float
    ) -> TopicSeen:
        name = topic.name
        parts = tuple(
            replace(
                part,
                start=starts.get((name, part.index)),
                end=ends.get((name, part.index)),
                size=self._sizes.get((part.leader, name, part.index)),
            )
            for part in topic.partitions
        )
        return replace(topic, partitions=parts, rate=self._rate(topic, parts, now_s))

    def _rate(self, topic: TopicSeen, parts: Iterable[PartitionSeen], now_s: float) -> float | None:
        """Messages a second since the picture before, of the same topic."""
        before = None if self._before is None else self._before.topics.get(topic.name)
        if self._before is None or before is None or before.id != topic.id:
            return None
        seconds = now_s - self._before.time_s
        if seconds < _RATE_SECONDS_MIN:
            return before.rate
        old = {part.index: part.end for part in before.partitions}
        grown = 0
        for part in parts:
            was = old.get(part.index, 0)
            if part.end is not None and was is not None:
                grown += max(0, part.end - was)
        return grown / seconds

    def _with_disk(self, broker: BrokerSeen, silent: set[int]) -> BrokerSeen:
        used, total, free = self._disks.get(broker.id, (None, None, None))
        return replace(
            broker,
            answers=broker.id not in silent,
            disk_bytes=used,
            disk_total_bytes=total,
            disk_free_bytes=free,
        )

    def _log_starts(self, asking: _Asking, topics: Mapping[str, TopicSeen]) -> dict[Place, int]:
        """The first offsets; asked for only where they are not known."""
        unknown = {
            name: topic
            for name, topic in topics.items()
            if any((topic.id, part.index) not in self._starts for part in topic.partitions)
        }
        for (name, index), offset in _log_ends(asking, unknown, EARLIEST).items():
            self._starts[topics[name].id, index] = offset
        return {
            (name, part.index): self._starts[topic.id, part.index]
            for name, topic in topics.items()
            for part in topic.partitions
            if (topic.id, part.index) in self._starts
        }

    def _read_sizes(self, asking: _Asking) -> None:
        self._sizes.clear()
        self._sizes_refused = False
        for node in asking.brokers:
            answer = asking.ask(node, DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse)
            if answer is None:
                continue
            if answer.error_code:
                self._sizes_refused = True
                continue
            used = 0
            for directory in answer.results:
                for topic in directory.topics:
                    for part in topic.partitions:
                        self._sizes[node, topic.name, part.partition_index] = part.partition_size
                        used += part.partition_size
            total = [each.total_bytes for each in answer.results if each.total_bytes >= 0]
            free = [each.usable_bytes for each in answer.results if each.usable_bytes >= 0]
            self._disks[node] = (used, sum(total) if total else None, sum(free) if free else None)


class _Asking:
    """Requests to brokers, of which some may not answer."""

    def __init__(
        self, connections: BrokerConnections, brokers: Mapping[int, BrokerSeen], silent: set[int]
    ) -> None:
        self._connections = connections
        self.brokers = brokers
        self._silent = silent
        self.waited_s = 0.0
        """For answers: what the brokers needed, at most."""

    def ask(self, node: int, request: Request, response: type[R], limit: int | None = None) -> R | None:
        """None if the broker does not answer; it is not asked again in this picture."""
        broker = self.brokers.get(node)
        if broker is None or node in self._silent:
            return None
        began = time.monotonic()
        try:
            return self._at(broker).ask(request, response, limit)
        except CommandError:
            self._connections.forget(broker.address)
            self._silent.add(node)
            return None
        finally:
            self.waited_s += time.monotonic() - began

    def _at(self, broker: BrokerSeen) -> WireConnection:
        return self._connections.at(broker.address)


def _topics_of(metadata: MetadataResponse) -> dict[str, TopicSeen]:
    return {
        topic.name or "": TopicSeen(
            name=topic.name or "",
            id=topic.topic_id.hex(),
            partitions=tuple(
                PartitionSeen(
                    index=part.partition_index,
                    leader=part.leader_id,
                    leader_epoch=part.leader_epoch,
                    replicas=tuple(part.replica_nodes),
                    isr=tuple(part.isr_nodes),
                )
                for part in sorted(topic.partitions, key=lambda part: part.partition_index)
            ),
        )
        for topic in metadata.topics
        if not topic.error_code
    }


def _log_ends(asking: _Asking, topics: Mapping[str, TopicSeen], which: int) -> dict[Place, int]:
    wanted: dict[int, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for name, topic in topics.items():
        for part in topic.partitions:
            if part.leader >= 0:
                wanted[part.leader][name].append(part.index)
    found: dict[Place, int] = {}
    for node, by_topic in wanted.items():
        request = ListOffsetsRequest(
            replica_id=-1,
            topics=[
                ListOffsetsTopic(
                    name=name,
                    partitions=[
                        ListOffsetsPartition(partition_index=index, timestamp=which) for index in indexes
                    ],
                )
                for name, indexes in by_topic.items()
            ],
        )
        answer = asking.ask(node, request, ListOffsetsResponse)
        for topic_answer in () if answer is None else answer.topics:
            for each in topic_answer.partitions:
                if not each.error_code and each.offset >= 0:
                    found[topic_answer.name, each.partition_index] = each.offset
    return found


def _groups(
    asking: _Asking, ends: Mapping[Place, int], starts: Mapping[Place, int], hidden: set[str]
) -> dict[str, GroupSeen]:
    found: dict[str, GroupSeen] = {}
    for node in asking.brokers:
        listed = asking.ask(node, ListGroupsRequest(), ListGroupsResponse)
        if listed is None or listed.error_code:
            continue
        offsets = {
            **_committed(asking, node, [each for each in listed.groups if not _is_share(each)], hidden),
            **_share_starts(asking, node, [each for each in listed.groups if _is_share(each)]),
        }
        for each in listed.groups:
            own = offsets.get(each.group_id, {})
            found[each.group_id] = GroupSeen(
                name=each.group_id,
                kind=each.group_type.lower() or "classic",
                state=each.group_state,
                coordinator=node,
                offsets=own,
                lags={
                    place: max(0, ends[place] - max(offset, starts.get(place, 0)))
                    for place, offset in own.items()
                    if place in ends
                },
            )
    return found


def _is_share(group: ListedGroup) -> bool:
    return group.group_type.lower() == _SHARE


def _committed(
    asking: _Asking, node: int, groups: Iterable[ListedGroup], hidden: set[str]
) -> dict[str, dict[Place, int]]:
    wanted = [OffsetFetchRequestGroup(group_id=each.group_id, topics=None) for each in groups]
    if not wanted:
        return {}
    answer = asking.ask(node, OffsetFetchRequest(groups=wanted), OffsetFetchResponse, _BY_NAME_VERSION)
    found: dict[str, dict[Place, int]] = {}
    for group in () if answer is None else answer.groups:
        if group.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED:
            hidden.add("offsets of some groups: the right Describe on them is missing")
        found[group.group_id] = {
            (topic.name, part.partition_index): part.committed_offset
            for topic in group.topics
            for part in topic.partitions
            if not part.error_code and part.committed_offset >= 0
        }
    return found


def _share_starts(asking: _Asking, node: int, groups: Iterable[ListedGroup]) -> dict[str, dict[Place, int]]:
    wanted = [DescribeShareGroupOffsetsRequestGroup(group_id=each.group_id, topics=None) for each in groups]
    if not wanted:
        return {}
    request = DescribeShareGroupOffsetsRequest(groups=wanted)
    answer = asking.ask(node, request, DescribeShareGroupOffsetsResponse)
    return {
        group.group_id: {
            (topic.topic_name, part.partition_index): part.start_offset
            for topic in group.topics
            for part in topic.partitions
            if not part.error_code and part.start_offset >= 0
        }
        for group in (() if answer is None else answer.groups)
        if not group.error_code
    }


def _topic_lags(groups: Iterable[GroupSeen]) -> dict[str, int]:
    found: dict[str, int] = {}
    for group in groups:
        own: dict[str, int] = defaultdict(int)
        for (topic, _), lag in group.lags.items():
            own[topic] += lag
        for topic, lag in own.items():
            found[topic] = max(lag, found.get(topic, 0))
    return found


def _readers(groups: Iterable[GroupSeen]) -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = defaultdict(list)
    for group in groups:
        for topic in group.topics:
            found[topic].append(group.name)
    return {topic: tuple(sorted(names)) for topic, names in found.items()}
