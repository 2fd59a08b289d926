"""Finds what is wrong with a cluster now, with what to do about it, in one picture of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from forebay.console.watch.snapshot import Snapshot
from forebay.operations.remote_logs import is_behind

if TYPE_CHECKING:
    from forebay.wire.messages.describe_remote_logs import DescribedRemoteLog

_DISK_FREE_SHARE_MIN = 0.1
_DISK_FREE_SHARE_SEVERE = 0.03
_NAMED_MAX = 3


class Problem(NamedTuple):
    severity: str
    """severe or warning."""
    title: str
    advice: str
    link: str = ""
    """A view of the console that shows more."""


def problems(picture: Snapshot) -> list[Problem]:
    """The worst first."""
    found = [
        *_of_brokers(picture),
        *_of_partitions(picture),
        *_of_tiers(picture),
        *_of_disks(picture),
        *_of_groups(picture),
    ]
    return sorted(found, key=lambda problem: problem.severity != "severe")


def _of_brokers(picture: Snapshot) -> Iterator[Problem]:
    for broker in picture.brokers:
        if not broker.answers:
            yield Problem(
                "severe",
                f"Broker {broker.id} does not answer",
                f"The cluster lists it at {broker.address}, and the console cannot connect to it. "
                "Look at its log, and at the network between here and there.",
            )
    known = {broker.id for broker in picture.brokers}
    for node, count in sorted(replicas_by_broker(picture).items()):
        if node not in known:
            yield Problem(
                "warning",
                f"Broker {node} is away and has {count} replicas",
                "Start it again. If it will not come back, move its replicas to others: "
                "`forebay cluster rebalance`.",
            )


def _of_partitions(picture: Snapshot) -> Iterator[Problem]:
    leaderless = [topic for topic in picture.topics.values() if topic.leaderless]
    if leaderless:
        count = sum(topic.leaderless for topic in leaderless)
        yield Problem(
            "severe",
            f"{_count(count, 'partition has', 'partitions have')} no leader",
            f"Nobody can read or write them: {_named([topic.name for topic in leaderless])}. "
            "Start the brokers that have their replicas; `forebay cluster check` names what is missing.",
            _link(leaderless[0].name, len(leaderless)),
        )
    behind = [topic for topic in picture.topics.values() if topic.under_replicated]
    if behind:
        count = sum(topic.under_replicated for topic in behind)
        yield Problem(
            "warning",
            f"{_count(count, 'partition is', 'partitions are')} under-replicated",
            f"A replica is away or behind: {_named([topic.name for topic in behind])}. "
            "They catch up by themselves when their broker is back.",
            _link(behind[0].name, len(behind)),
        )


def _of_tiers(picture: Snapshot) -> Iterator[Problem]:
    logs = [
        part.remote
        for topic in picture.topics.values()
        for part in topic.partitions
        if part.remote is not None
    ]
    failing = [log for log in logs if log.problem]
    if failing:
        yield Problem(
            "severe",
            f"The object store fails for {_count(len(failing), 'partition', 'partitions')}",
            f"{_topics_of(failing)}: {failing[0].problem}. Producing goes on, and brokers try again. Until "
            "the store works, messages that are only there cannot be read, and no disk is freed.",
            _tiers_link(failing),
        )
    behind = [log for log in logs if is_behind(log) and not log.problem]
    if behind:
        segments = sum(log.waiting_segments for log in behind)
        yield Problem(
            "warning",
            f"Copying to the object store is behind: {segments:,} closed segments wait",
            f"{_topics_of(behind)}: their disks grow meanwhile. Raise "
            "remote.log.manager.copy.max.bytes.per.second or remote.log.manager.copier.thread.pool.size, or "
            "see whether the store is slow.",
            _tiers_link(behind),
        )


def _topics_of(logs: list[DescribedRemoteLog]) -> str:
    return _named(sorted({log.topic for log in logs}))


def _tiers_link(logs: list[DescribedRemoteLog]) -> str:
    topics = {log.topic for log in logs}
    return f"topics/{logs[0].topic}?tab=tiers" if len(topics) == 1 else "topics?sort=-remote"


def _of_disks(picture: Snapshot) -> Iterator[Problem]:
    for broker in picture.brokers:
        total, free = broker.disk_total_bytes, broker.disk_free_bytes
        if not total or free is None or free / total >= _DISK_FREE_SHARE_MIN:
            continue
        severe = free / total < _DISK_FREE_SHARE_SEVERE
        yield Problem(
            "severe" if severe else "warning",
            f"The disk of broker {broker.id} is {100 - 100 * free // total} % full",
            "Shorten the retention of the largest topics, delete what nobody needs, or add a disk.",
            "topics?sort=-size",
        )


def _of_groups(picture: Snapshot) -> Iterator[Problem]:
    """A stream of Spark is never a member of the group to which it commits."""
    idle = [
        group
        for group in picture.groups.values()
        if group.state == "Empty" and group.lag and not group.is_spark
    ]
    if idle:
        idle.sort(key=lambda group: -(group.lag or 0))
        link = "share-groups" if all(group.kind == "share" for group in idle) else "groups?sort=-lag"
        yield Problem(
            "warning",
            f"{_count(len(idle), 'group is', 'groups are')} behind, and nobody reads for "
            f"{'it' if len(idle) == 1 else 'them'}",
            f"{_named([group.name for group in idle])}: start its consumers, or delete what is not needed.",
            link,
        )


def _link(topic: str, count: int) -> str:
    return f"topics/{topic}" if count == 1 else "topics"


def _named(names: list[str]) -> str:
    more = len(names) - _NAMED_MAX
    return ", ".join(names[:_NAMED_MAX]) + (f" and {more} more" if more > 0 else "")


def _count(count: int, one: str, many: str) -> str:
    return f"{count:,} {one if count == 1 else many}"


def replicas_by_broker(picture: Snapshot) -> Counter[int]:
    return Counter(
        node for topic in picture.topics.values() for part in topic.partitions for node in part.replicas
    )
