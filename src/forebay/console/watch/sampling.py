"""One look at a cluster: few requests, each of them for everything that one broker knows.

Metadata from any broker; from each leader the ends of its partitions; from each broker the groups that it
coordinates, and their offsets. Sizes on disk and in object stores are asked for less often. A user without a
right gets an answer with less in it; what was refused is named in the picture.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace

from forebay.console.watch.activity import ActivityWatch
from forebay.console.watch.progress import LEDGER, SPARK, groups_moved, ledgers_moved, take_ledgers
from forebay.console.watch.questions import Asking
from forebay.console.watch.snapshot import BrokerSeen, GroupSeen, PartitionSeen, Place, Snapshot, TopicSeen
from forebay.console.watch.timeline import Timeline
from forebay.errors import ErrorCode
from forebay.operations.wire import BrokerConnections
from forebay.wire.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
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

EARLIEST, LATEST = -2, -1
_SHARE = "share"
_BY_NAME_VERSION = 9
"""The last version of OffsetFetch that names topics."""
_RATE_SECONDS_MIN = 0.5


class Sampler:
    """Takes the pictures of one cluster, one after the other, with connections that it keeps."""

    def __init__(self, connections: BrokerConnections, timeline: Timeline, *, slowly_s: float) -> None:
        """`slowly_s`: how often that is asked for which changes slowly: sizes, and where logs begin."""
        self._connections = connections
        self._slowly_s = slowly_s
        self._before: Snapshot | None = None
        self._sizes: dict[tuple[int, str, int], int] = {}
        self._disks: dict[int, tuple[int, int | None, int | None]] = {}
        self._sizes_refused = False
        self._remote: dict[Place, DescribedRemoteLog] = {}
        self._starts: dict[tuple[str, int], int] = {}
        """By the id of the topic: one of the same name may begin elsewhere."""
        self._starts_before: dict[tuple[str, int], int] = {}
        """Used where a leader does not know it now, since its object store is away, say."""
        self._slowly_at = -math.inf
        self._activity = ActivityWatch(timeline)

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
        asking = Asking(self._connections, brokers, silent)
        topics = _topics_of(metadata)
        slowly = began - self._slowly_at >= self._slowly_s
        if slowly:
            self._slowly_at = began
            self._starts = {}
        ends, starts = _log_ends(asking, topics, LATEST), self._log_starts(asking, topics)
        found = _groups(asking, ends, starts, hidden)
        ledgers = take_ledgers(found)
        groups = dict(sorted({**self._remembered(silent), **found}.items()))
        if self._before is not None:
            groups = groups_moved(self._before.groups, groups, self._before.time_s, now_s)
            ledgers = ledgers_moved(self._before.ledgers, ledgers, self._before.time_s, now_s, bool(silent))
        if slowly:
            self._read_sizes(asking)
            self._remote = _remote_logs(asking)
        if self._sizes_refused:
            hidden.add("sizes on disk: the right Describe on the cluster is missing")
        seen = {name: self._measured(topic, starts, ends, now_s) for name, topic in sorted(topics.items())}
        activity = self._activity.look(asking, now_s)
        if self._activity.refused:
            hidden.add("times of requests and the timeline: the right Describe on the cluster is missing")
        picture = Snapshot(
            time_s=now_s,
            number=1 if self._before is None else self._before.number + 1,
            cluster_id=metadata.cluster_id or "",
            controller=metadata.controller_id,
            brokers=tuple(self._with_disk(each, silent) for _, each in sorted(brokers.items())),
            topics=seen,
            groups=groups,
            readers=_readers(groups.values()),
            ledgers=ledgers,
            topic_lags=_topic_lags(groups.values()),
            took_s=metadata_s + asking.waited_s,
            hidden=tuple(sorted(hidden)),
            activity=activity,
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
                remote=self._remote.get((name, part.index)),
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

    def _log_starts(self, asking: Asking, topics: Mapping[str, TopicSeen]) -> dict[Place, int]:
        """The first offsets; asked for only where they are not known."""
        unknown = {
            name: topic
            for name, topic in topics.items()
            if any((topic.id, part.index) not in self._starts for part in topic.partitions)
        }
        for (name, index), offset in _log_ends(asking, unknown, EARLIEST).items():
            self._starts[topics[name].id, index] = offset
        places = [
            (name, part.index, (topic.id, part.index))
            for name, topic in topics.items()
            for part in topic.partitions
        ]
        known = {**self._starts_before, **self._starts}
        self._starts_before = {at: known[at] for _, _, at in places if at in known}
        return {
            (name, index): self._starts_before[at] for name, index, at in places if at in self._starts_before
        }

    def _read_sizes(self, asking: Asking) -> None:
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


def _log_ends(asking: Asking, topics: Mapping[str, TopicSeen], which: int) -> dict[Place, int]:
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


def _remote_logs(asking: Asking) -> dict[Place, DescribedRemoteLog]:
    """The tiered partitions, as their leaders tell of them."""
    found: dict[Place, DescribedRemoteLog] = {}
    for node in asking.brokers:
        if asking.serves(node, DescribeRemoteLogsRequest):
            answer = asking.ask(node, DescribeRemoteLogsRequest(), DescribeRemoteLogsResponse)
            for each in () if answer is None else answer.partitions:
                found[each.topic, each.partition_index] = each
    return found


def _groups(
    asking: Asking, ends: Mapping[Place, int], starts: Mapping[Place, int], hidden: set[str]
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
            own, is_spark = offsets.get(each.group_id, ({}, False))
            found[each.group_id] = GroupSeen(
                name=each.group_id,
                kind=LEDGER if each.protocol_type == LEDGER else each.group_type.lower() or "classic",
                is_spark=is_spark,
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
    asking: Asking, node: int, groups: Iterable[ListedGroup], hidden: set[str]
) -> dict[str, tuple[dict[Place, int], bool]]:
    """The offsets of each group, and whether Spark has committed them."""
    wanted = [OffsetFetchRequestGroup(group_id=each.group_id, topics=None) for each in groups]
    if not wanted:
        return {}
    answer = asking.ask(node, OffsetFetchRequest(groups=wanted), OffsetFetchResponse, _BY_NAME_VERSION)
    found: dict[str, tuple[dict[Place, int], bool]] = {}
    for group in () if answer is None else answer.groups:
        if group.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED:
            hidden.add("offsets of some groups: the right Describe on them is missing")
        offsets: dict[Place, int] = {}
        is_spark = False
        for topic in group.topics:
            for part in topic.partitions:
                if not part.error_code and part.committed_offset >= 0:
                    offsets[topic.name, part.partition_index] = part.committed_offset
                    is_spark = is_spark or part.metadata == SPARK
        found[group.group_id] = offsets, is_spark
    return found


def _share_starts(
    asking: Asking, node: int, groups: Iterable[ListedGroup]
) -> dict[str, tuple[dict[Place, int], bool]]:
    wanted = [DescribeShareGroupOffsetsRequestGroup(group_id=each.group_id, topics=None) for each in groups]
    if not wanted:
        return {}
    request = DescribeShareGroupOffsetsRequest(groups=wanted)
    answer = asking.ask(node, request, DescribeShareGroupOffsetsResponse)
    return {
        group.group_id: (
            {
                (topic.topic_name, part.partition_index): part.start_offset
                for topic in group.topics
                for part in topic.partitions
                if not part.error_code and part.start_offset >= 0
            },
            False,
        )
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
