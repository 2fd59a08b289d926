"""The assignor "simple": assigns partitions to the members of a share group.

Each partition has two members, or all subscribers if there are fewer. A member that dies or is paused stays
in the group for its session timeout, and the other member takes the records meanwhile. Balance comes next:
members with the same subscription have the same number of partitions, give or take one. Then a member keeps
its partitions.

When there are more members than that takes, each of the others gets one partition, and the members are spread
evenly over the partitions as far as subscriptions allow. Racks are not considered. The same input gives the
same output.

The balance is found as in `uniform`: while there is a chain of members in which each can give a partition to
the next, and the last has at least two fewer than the first, one partition is moved along each link.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Mapping
from heapq import heapify, heappop, heappush, heapreplace

from forebay.core.groups.assigned_partitions import Partitions, TopicPartition
from forebay.core.groups.consumer.assignors import Subscriber, Subscribers

NAME = "simple"
MEMBERS_PER_PARTITION = 2

Available = Mapping[bytes, frozenset[int]]
"""The partitions that may be assigned, by topic id."""

_Link = tuple[str, TopicPartition, str]
"""A partition, with the member that gives it away and the one that takes it."""


def simple_assignor(members: Subscribers, topics: Available) -> dict[str, Partitions]:
    shares = _Covered(members, topics).assign()
    _share(shares, members, topics)
    return shares


def is_covered(members: Subscribers, topics: Available) -> bool:
    """True if exactly the given partitions are assigned, each to as many members as it should have."""
    subscribers = Counter(topic for member in members.values() for topic in member.topics)
    holders = Counter(partition for member in members.values() for partition in member.assigned)
    wanted = {
        (topic, index): min(MEMBERS_PER_PARTITION, subscribers[topic])
        for topic, found in topics.items()
        for index in found
    }
    return holders.keys() == wanted.keys() and all(holders[each] >= wanted[each] for each in wanted)


class _Covered:
    """Gives each partition to two members."""

    def __init__(self, members: Subscribers, topics: Available) -> None:
        self._members = members
        self._topics = {topic: topics[topic] for topic in sorted(topics)}
        self._subscribers = {
            topic: [member_id for member_id in sorted(members) if topic in members[member_id].topics]
            for topic in self._topics
        }
        self._shares: dict[str, dict[bytes, dict[int, None]]] = {each: {} for each in sorted(members)}
        """By topic, with the partitions that a member had before first: it gives up the last ones first."""
        self._load = dict.fromkeys(self._shares, 0)
        self._holders: dict[TopicPartition, int] = {
            (topic, index): 0 for topic, found in self._topics.items() for index in sorted(found)
        }

    def assign(self) -> dict[str, Partitions]:
        self._keep()
        # Topics with few subscribers come first: their subscribers then get less of the others.
        for topic in sorted(self._topics, key=lambda each: (len(self._subscribers[each]), each)):
            self._fill_up(topic)
        while self._even_out():
            pass
        return {
            member_id: frozenset((topic, index) for topic, found in share.items() for index in found)
            for member_id, share in self._shares.items()
        }

    def _missing(self, partition: TopicPartition) -> int:
        wanted = min(MEMBERS_PER_PARTITION, len(self._subscribers[partition[0]]))
        return wanted - self._holders[partition]

    def _keep(self) -> None:
        """Leave partitions with the members that had them."""
        for member_id in self._shares:
            member = self._members[member_id]
            for partition in sorted(member.assigned):
                exists = partition[0] in member.topics and partition in self._holders
                if exists and self._missing(partition):
                    self._add(member_id, *partition)

    def _add(self, member_id: str, topic: bytes, index: int) -> None:
        self._shares[member_id].setdefault(topic, {})[index] = None
        self._load[member_id] += 1
        self._holders[topic, index] += 1

    def _remove(self, member_id: str, topic: bytes, index: int) -> None:
        share = self._shares[member_id]
        del share[topic][index]
        if not share[topic]:
            del share[topic]
        self._load[member_id] -= 1
        self._holders[topic, index] -= 1

    def _fill_up(self, topic: bytes) -> None:
        """Assign what is missing to the members with the fewest partitions."""
        heap = [(self._load[member_id], member_id) for member_id in self._subscribers[topic]]
        heapify(heap)
        for index in sorted(self._topics[topic]):
            seen: list[tuple[int, str]] = []
            while self._missing((topic, index)):
                load, member_id = heappop(heap)
                if index not in self._shares[member_id].get(topic, ()):
                    self._add(member_id, topic, index)
                    load += 1
                seen.append((load, member_id))
            for each in seen:
                heappush(heap, each)

    # -- evening out ---------------------------------------------------------------------------------

    def _even_out(self) -> bool:
        """Move partitions away from the members with the most; true if any was moved.

        Each chain makes the sum of the squared loads smaller, so this ends.
        """
        least = min(self._load.values(), default=0)
        heap = [(-load, each) for each, load in self._load.items() if load > least + 1]
        heapify(heap)
        settled: set[str] = set()
        has_moved = False
        while heap:
            load, member_id = heappop(heap)
            if -load != self._load[member_id] or member_id in settled:
                continue
            if min(self._load.values()) > -load - 2:
                break  # nobody has so few that the one with the most could give any away
            chain = self._chain_from(member_id, settled)
            for giver, partition, taker in chain:
                self._remove(giver, *partition)
                self._add(taker, *partition)
            if chain:
                has_moved = True
                for changed in (member_id, chain[0][2]):
                    heappush(heap, (-self._load[changed], changed))
        return has_moved

    def _chain_from(self, heavy: str, settled: set[str]) -> list[_Link]:
        """The shortest chain to a member with at least two fewer, its last link first. If there is none, all
        members that were reached are final too: they have no more, and reach no others."""
        came_by: dict[str, tuple[str, TopicPartition]] = {heavy: ("", (b"", 0))}
        goal = self._load[heavy] - 2
        queue = deque([heavy])
        while queue:
            giver = queue.popleft()
            for partition, taker in self._links(giver, load_max=goal):
                if taker not in came_by:
                    came_by[taker] = giver, partition
                    return list(_walk_back(came_by, taker))
            for partition, taker in self._links(giver):
                if taker not in came_by:
                    came_by[taker] = giver, partition
                    queue.append(taker)
        settled.update(came_by)
        return []

    def _links(self, giver: str, load_max: int | None = None) -> Iterator[tuple[TopicPartition, str]]:
        """The partitions that a member can give to others: for each topic the one that it got last."""
        for topic, partitions in self._shares[giver].items():
            for taker in self._subscribers[topic]:
                if load_max is None or self._load[taker] <= load_max:
                    had = self._shares[taker].get(topic, ())
                    given = next((each for each in reversed(partitions) if each not in had), None)
                    if given is not None:
                        yield (topic, given), taker


def _walk_back(came_by: Mapping[str, tuple[str, TopicPartition]], taker: str) -> Iterator[_Link]:
    giver, partition = came_by[taker]
    while giver:
        yield giver, partition, taker
        taker = giver
        giver, partition = came_by[taker]


def _share(shares: dict[str, Partitions], members: Subscribers, topics: Available) -> None:
    """Give one partition to each member that has none, the least shared one of its topics."""
    without = sorted(member_id for member_id, share in shares.items() if not share)
    if not without:
        return
    loads: dict[TopicPartition, int] = {
        (topic, index): 0 for topic in sorted(topics) for index in sorted(topics[topic])
    }
    for share in shares.values():
        for partition in share:
            loads[partition] += 1
    chosen: dict[str, TopicPartition] = {}
    least = _LeastShared(loads)
    # Those that had a partition come first, so they keep it, and newcomers fill up the others.
    for member_id in sorted(without, key=lambda each: not _had(members[each], loads)):
        member = members[member_id]
        had = [partition for partition in _had(member, loads) if partition[0] in member.topics]
        option = had[0] if had else least.of(member.topics)
        if option is not None:
            chosen[member_id] = option
            least.add(option)
    _spread(chosen, least, members)
    shares.update((member_id, frozenset([partition])) for member_id, partition in chosen.items())


def _had(member: Subscriber, loads: Mapping[TopicPartition, int]) -> list[TopicPartition]:
    return sorted(partition for partition in member.assigned if partition in loads)


class _LeastShared:
    """The partitions that fewest members have, kept for each set of topics while members are given some.

    A heap for each set has every partition with the load that it had at some time, and with its place among
    the others, the first of which is taken among equals.
    """

    def __init__(self, loads: dict[TopicPartition, int]) -> None:
        self.loads = loads
        self._places = {partition: place for place, partition in enumerate(loads)}
        self._heaps: dict[frozenset[bytes], list[tuple[int, int, TopicPartition]]] = {}

    def of(self, topics: frozenset[bytes]) -> TopicPartition | None:
        """The one with the lowest load of these topics; None if they have no partitions."""
        heap = self._heaps.get(topics)
        if heap is None:
            heap = self._heaps[topics] = [self._entry(each) for each in self.loads if each[0] in topics]
            heapify(heap)
        while heap and heap[0][0] != self.loads[heap[0][2]]:
            heapreplace(heap, self._entry(heap[0][2]))
        return heap[0][2] if heap else None

    def add(self, partition: TopicPartition) -> None:
        self.loads[partition] += 1

    def remove(self, partition: TopicPartition) -> None:
        """Heaps find loads that have grown, but not those that have become smaller."""
        self.loads[partition] -= 1
        for topics, heap in self._heaps.items():
            if partition[0] in topics:
                heappush(heap, self._entry(partition))

    def _entry(self, partition: TopicPartition) -> tuple[int, int, TopicPartition]:
        return self.loads[partition], self._places[partition], partition


def _spread(chosen: dict[str, TopicPartition], least: _LeastShared, members: Subscribers) -> None:
    """Move members from partitions that have at least two more than another one of their topics.

    Each move makes the sum of the squared loads smaller, so this ends.
    """
    moved = True
    while moved:
        moved = False
        for member_id, partition in chosen.items():
            best = least.of(members[member_id].topics)
            assert best is not None, "it was given one of them"
            if least.loads[best] <= least.loads[partition] - 2:
                least.remove(partition)
                least.add(best)
                chosen[member_id] = best
                moved = True
