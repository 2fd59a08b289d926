"""The state of a cluster at one moment, as its brokers answered."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING

from forebay.lazy import dataclass
from forebay.operations.cluster.cluster_state import BrokerLoad
from forebay.operations.messages.log_offsets import Place
from forebay.operations.remote_logs import is_behind

if TYPE_CHECKING:
    from forebay.wire.messages.describe_remote_logs import DescribedRemoteLog


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    total_bytes: int
    free_bytes: int
    topic_bytes: Mapping[str, int]
    """Of the replicas on one broker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSeen:
    name: str
    kind: str
    """classic, consumer or share."""
    state: str
    positions: Mapping[Place, int] = field(default_factory=dict)
    """Committed offsets; of a share group the first offsets that are not finished."""
    lag: Mapping[Place, int] = field(default_factory=dict)
    seconds: float | None = None
    """The age of the oldest message that it has not read; None if it is unknown."""

    @property
    def messages(self) -> int:
        return sum(self.lag.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    at_s: float
    brokers: list[BrokerLoad]
    leaders: Mapping[Place, int]
    ends: Mapping[Place, int]
    disks: Mapping[int, Disk]
    groups: Mapping[str, GroupSeen]
    silent: frozenset[int]
    """Brokers of the cluster that could not be asked."""
    leaderless: int
    under_replicated: int
    moving: int
    remote_logs: Sequence[DescribedRemoteLog] = ()
    """The tiered partitions, as their leaders tell of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRow:
    load: BrokerLoad
    rate: float | None
    disk: Disk | None
    is_silent: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRow:
    name: str
    partitions: int
    messages: int
    rate: float | None
    bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRow:
    group: GroupSeen
    rate: float | None
    """Messages that it reads per second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    brokers: list[BrokerRow]
    topics: list[TopicRow]
    groups: list[GroupRow]
    problems: list[str]
    rate: float | None


def overview(before: Snapshot | None, now: Snapshot, *, internal: bool, rows: int) -> Overview:
    """`before`: an earlier snapshot, for rates. `rows`: how many topics and groups are shown."""
    rates = _rates(before, now)
    topics, groups = _topics(now, rates, internal=internal), _groups(before, now)
    return Overview(
        brokers=[
            BrokerRow(
                load=load,
                rate=_sum(rates, (at for at, leader in now.leaders.items() if leader == load.id)),
                disk=now.disks.get(load.id),
                is_silent=load.id in now.silent,
            )
            for load in now.brokers
        ],
        topics=topics[:rows],
        groups=groups[:rows],
        problems=_problems(now, groups),
        rate=_sum(rates, now.ends),
    )


def _rates(before: Snapshot | None, now: Snapshot) -> dict[Place, float] | None:
    """Messages per second, by partition; None without an earlier snapshot."""
    if before is None or now.at_s <= before.at_s:
        return None
    passed_s = now.at_s - before.at_s
    return {at: max(end - before.ends[at], 0) / passed_s for at, end in now.ends.items() if at in before.ends}


def _sum(rates: Mapping[Place, float] | None, places: Iterable[Place]) -> float | None:
    return None if rates is None else sum(rates.get(at, 0.0) for at in places)


def _topics(now: Snapshot, rates: Mapping[Place, float] | None, *, internal: bool) -> list[TopicRow]:
    """The busiest first, then the largest."""
    places: dict[str, list[Place]] = {}
    for at in now.leaders:
        if internal or not at[0].startswith("__"):
            places.setdefault(at[0], []).append(at)
    rows = [
        TopicRow(
            name=name,
            partitions=len(own),
            messages=sum(now.ends.get(at, 0) for at in own),
            rate=_sum(rates, own),
            bytes=sum(disk.topic_bytes.get(name, 0) for disk in now.disks.values()) if now.disks else None,
        )
        for name, own in places.items()
    ]
    return sorted(rows, key=lambda row: (-(row.rate or 0), -(row.bytes or 0), row.name))


def _groups(before: Snapshot | None, now: Snapshot) -> list[GroupRow]:
    """Those that are furthest behind first."""
    rows = [GroupRow(group=group, rate=_read_rate(before, now, group)) for group in now.groups.values()]
    return sorted(rows, key=lambda row: (-row.group.messages, row.group.name))


def _read_rate(before: Snapshot | None, now: Snapshot, group: GroupSeen) -> float | None:
    earlier = None if before is None else before.groups.get(group.name)
    if before is None or earlier is None or now.at_s <= before.at_s:
        return None
    read = sum(max(at - earlier.positions.get(place, at), 0) for place, at in group.positions.items())
    return read / (now.at_s - before.at_s)


_DISK_FREE_MIN = 0.1
_BEHIND_S_MAX = 900.0
_NAMED_MAX = 5


def _problems(now: Snapshot, groups: list[GroupRow]) -> list[str]:
    """Problems that somebody should look at, with where to look."""
    found = [
        f"broker {load.id} is away and has {load.replicas} replicas: start it, or "
        f"`forebay cluster drain {load.id}`"
        for load in now.brokers
        if not load.alive
    ]
    found += [f"broker {node} does not answer: look at its log" for node in sorted(now.silent)]
    if now.leaderless:
        found.append(f"{now.leaderless} partitions have no leader: `forebay cluster describe`")
    if now.under_replicated:
        found.append(f"{now.under_replicated} partitions are under-replicated: `forebay cluster describe`")
    if now.moving:
        found.append(f"{now.moving} partitions are being moved: `forebay cluster describe`")
    found += _of_tiers(now.remote_logs)
    for node, disk in sorted(now.disks.items()):
        if disk.total_bytes > 0 and disk.free_bytes < disk.total_bytes * _DISK_FREE_MIN:
            found.append(f"the disk of broker {node} is {1 - disk.free_bytes / disk.total_bytes:.0%} full")
    return found + [_about_group(row.group) for row in groups if _is_behind(row.group)][:_NAMED_MAX]


def _of_tiers(logs: Sequence[DescribedRemoteLog]) -> Iterator[str]:
    failing = [log for log in logs if log.problem]
    if failing:
        first = failing[0]
        yield (
            f"the object store fails for {len(failing)} partitions: {first.problem}: "
            f"`forebay topic describe {first.topic}`"
        )
    behind = [log for log in logs if is_behind(log) and not log.problem]
    if behind:
        segments = sum(log.waiting_segments for log in behind)
        most = max(behind, key=lambda log: log.waiting_bytes)
        yield f"{segments} closed segments wait for the object store: `forebay topic describe {most.topic}`"


def _is_behind(group: GroupSeen) -> bool:
    has_no_readers = group.messages > 0 and group.state == "Empty"
    return has_no_readers or (group.seconds or 0.0) > _BEHIND_S_MAX


def _about_group(group: GroupSeen) -> str:
    command = "share" if group.kind == "share" else "group"
    behind = f"{group.messages:,} messages"
    if group.seconds is not None:
        behind += f", {group.seconds:,.0f} s"
    members = " and has no members" if group.state == "Empty" else ""
    return f"{group.name} is {behind} behind{members}: `forebay {command} describe {group.name}`"
