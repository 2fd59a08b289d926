"""The assignor "simple": who is given which partitions of a share group.

Balance comes first: members that subscribe alike have as many partitions as each other, give or take one.
Then a member keeps what it had. As long as there are partitions enough, each has one member, as in a group
of consumers, so `uniform` does the work. Members for whom nothing is left then share a partition with
others: each is given one, and the partitions have as many members as each other as far as subscriptions
allow. Racks are not looked at. The same input gives the same output.
"""

from __future__ import annotations

from collections.abc import Mapping

from forebay.core.groups.assigned_partitions import Partitions, TopicPartition
from forebay.core.groups.consumer.assignors import Subscriber, Subscribers, uniform_assignor

NAME = "simple"

Available = Mapping[bytes, frozenset[int]]
"""The partitions that may be assigned, by topic id."""


def simple_assignor(members: Subscribers, topics: Available) -> dict[str, Partitions]:
    shares = _one_member_each(members, topics)
    _share(shares, members, topics)
    return shares


def _one_member_each(members: Subscribers, topics: Available) -> dict[str, Partitions]:
    """Each partition to one member. `uniform` counts partitions from 0, so it is given their places."""
    indexes = {topic: sorted(partitions) for topic, partitions in topics.items()}
    places = {topic: {index: place for place, index in enumerate(found)} for topic, found in indexes.items()}
    placed = {
        member_id: Subscriber(
            topics=member.topics,
            assigned=frozenset(
                (topic, places[topic][index])
                for topic, index in member.assigned
                if index in places.get(topic, ())
            ),
        )
        for member_id, member in members.items()
    }
    shares = uniform_assignor(placed, {topic: len(found) for topic, found in indexes.items()})
    return {
        member_id: frozenset((topic, indexes[topic][place]) for topic, place in share)
        for member_id, share in shares.items()
    }


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
    # Those that had a partition come first, so that they keep it and newcomers fill the others up.
    for member_id in sorted(without, key=lambda each: not _had(members[each], loads)):
        member = members[member_id]
        options = [partition for partition in loads if partition[0] in member.topics]
        if options:
            had = [partition for partition in _had(member, loads) if partition[0] in member.topics]
            chosen[member_id] = had[0] if had else min(options, key=loads.__getitem__)
            loads[chosen[member_id]] += 1
    _even_out(chosen, loads, members)
    shares.update((member_id, frozenset([partition])) for member_id, partition in chosen.items())


def _had(member: Subscriber, loads: Mapping[TopicPartition, int]) -> list[TopicPartition]:
    return sorted(partition for partition in member.assigned if partition in loads)


def _even_out(
    chosen: dict[str, TopicPartition], loads: dict[TopicPartition, int], members: Subscribers
) -> None:
    """Move members from partitions that have at least two more than another one of their topics.

    Each move makes the sum of the squared loads smaller, so this comes to an end.
    """
    moved = True
    while moved:
        moved = False
        for member_id, partition in chosen.items():
            options = (each for each in loads if each[0] in members[member_id].topics)
            best = min(options, key=loads.__getitem__)
            if loads[best] <= loads[partition] - 2:
                loads[partition] -= 1
                loads[best] += 1
                chosen[member_id] = best
                moved = True
