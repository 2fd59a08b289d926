"""Assigns the partitions of a group to its members.

An assignor is a function from the members and what they subscribe to, the topics and how many partitions each
has, and the assignment so far, to the next assignment. Every partition of a topic with subscribers is given
to exactly one of them. The same input gives the same output.

`range` gives each member a run of consecutive partitions of each topic, and the same run of each, so that one
member has the same partitions of all topics with the same number of partitions and the same subscribers.

`uniform` gives all members the same number of partitions, as far as subscriptions allow, and moves as few as
possible for that. It keeps the assignment, gives each free partition to the member with the fewest, and then
balances: while there is a chain of members in which each can give a partition to the next, and the last has
at least two fewer than the first, one partition is moved along the chain. When no chain is left, the
assignment is as even as it can be.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from heapq import heapify, heappop, heappush, heapreplace

from forebay.core.groups.assigned_partitions import Partitions, TopicPartition
from forebay.lazy import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscriber:
    topics: frozenset[bytes]
    """Ids of existing topics."""
    instance_id: str | None = None
    assigned: Partitions = frozenset()
    """Its assignment so far."""


Subscribers = Mapping[str, Subscriber]
Topics = Mapping[bytes, int]
Assignor = Callable[[Subscribers, Topics], dict[str, Partitions]]


def range_assignor(members: Subscribers, topics: Topics) -> dict[str, Partitions]:
    shares: dict[str, set[TopicPartition]] = {member_id: set() for member_id in members}
    for topic, subscribers in _by_topic(members, topics).items():
        # A static member keeps its place in the order when it comes back under another member id.
        subscribers.sort(key=lambda each: _place(members[each], each))
        start = 0
        least, rest = divmod(topics[topic], len(subscribers))
        for position, member_id in enumerate(subscribers):
            end = start + least + (position < rest)
            shares[member_id].update((topic, index) for index in range(start, end))
            start = end
    return {member_id: frozenset(share) for member_id, share in shares.items()}


def _place(member: Subscriber, member_id: str) -> tuple[bool, str]:
    return member.instance_id is None, member.instance_id or member_id


def uniform_assignor(members: Subscribers, topics: Topics) -> dict[str, Partitions]:
    return _Uniform(members, topics).assign()


ASSIGNORS: dict[str, Assignor] = {"uniform": uniform_assignor, "range": range_assignor}


class _Uniform:
    def __init__(self, members: Subscribers, topics: Topics) -> None:
        self._members = members
        self._topics = topics
        self._subscribers = _by_topic(members, topics)
        self._shares: dict[str, dict[bytes, list[int]]] = {member_id: {} for member_id in sorted(members)}
        """By topic, with the partitions that a member had before first: it gives up the last ones first."""
        self._load = dict.fromkeys(self._shares, 0)

    def assign(self) -> dict[str, Partitions]:
        given = self._keep()
        # Topics with few subscribers come first: their subscribers then get less of the others.
        for topic in sorted(self._subscribers, key=lambda each: (len(self._subscribers[each]), each)):
            self._give([index for index in range(self._topics[topic]) if (topic, index) not in given], topic)
        self._even_out()
        return {
            member_id: frozenset((topic, index) for topic, found in share.items() for index in found)
            for member_id, share in self._shares.items()
        }

    def _keep(self) -> set[TopicPartition]:
        """Keep assignments that can stay; returns the partitions that this assigns."""
        given: set[TopicPartition] = set()
        for member_id in self._shares:
            member = self._members[member_id]
            for topic, index in sorted(member.assigned):
                exists = topic in member.topics and index < self._topics.get(topic, 0)
                if exists and (topic, index) not in given:
                    given.add((topic, index))
                    self._add(member_id, topic, index)
        return given

    def _add(self, member_id: str, topic: bytes, index: int) -> None:
        self._shares[member_id].setdefault(topic, []).append(index)
        self._load[member_id] += 1

    def _give(self, free: list[int], topic: bytes) -> None:
        heap = [(self._load[member_id], member_id) for member_id in self._subscribers[topic]]
        heapify(heap)
        for index in free:
            load, member_id = heap[0]
            self._add(member_id, topic, index)
            heapreplace(heap, (load + 1, member_id))

    # -- evening out ---------------------------------------------------------------------------------

    def _even_out(self) -> None:
        """Take from the member with the most partitions. If it has no chain now, it will have none later."""
        least = min(self._load.values(), default=0)
        heap = [(-load, member_id) for member_id, load in self._load.items() if load > least + 1]
        heapify(heap)
        settled: set[str] = set()
        while heap:
            load, member_id = heappop(heap)
            if -load != self._load[member_id] or member_id in settled:
                continue
            chain = self._chain_from(member_id, settled)
            if chain:
                self._move_along(chain)
                for changed in (member_id, chain[0][2]):
                    heappush(heap, (-self._load[changed], changed))

    def _chain_from(self, heavy: str, settled: set[str]) -> list[tuple[str, bytes, str]]:
        """The shortest chain of (giver, topic, taker) that ends with a member with at least two fewer.

        If there is none, all members that were reached are final too: they have no more than `heavy`, and
        reach no other members.
        """
        came_by: dict[str, tuple[str, bytes]] = {heavy: ("", b"")}
        seen_topics: set[bytes] = set()
        queue = deque([heavy])
        while queue:
            giver = queue.popleft()
            for topic in [topic for topic in self._shares[giver] if topic not in seen_topics]:
                seen_topics.add(topic)
                for taker in self._subscribers[topic]:
                    if taker not in came_by:
                        came_by[taker] = (giver, topic)
                        if self._load[taker] <= self._load[heavy] - 2:
                            return list(_walk_back(came_by, taker))
                        queue.append(taker)
        settled.update(came_by)
        return []

    def _move_along(self, chain: list[tuple[str, bytes, str]]) -> None:
        for giver, topic, taker in chain:
            indexes = self._shares[giver][topic]
            self._load[giver] -= 1
            self._add(taker, topic, indexes.pop())
            if not indexes:
                del self._shares[giver][topic]


def _walk_back(came_by: Mapping[str, tuple[str, bytes]], taker: str) -> Iterator[tuple[str, bytes, str]]:
    giver, topic = came_by[taker]
    while giver:
        yield giver, topic, taker
        taker = giver
        giver, topic = came_by[taker]


def _by_topic(members: Subscribers, topics: Topics) -> dict[bytes, list[str]]:
    """The subscribers of each topic that has some."""
    found: dict[bytes, list[str]] = {}
    for member_id in sorted(members):
        for topic in members[member_id].topics:
            if topic in topics:
                found.setdefault(topic, []).append(member_id)
    return dict(sorted(found.items()))
