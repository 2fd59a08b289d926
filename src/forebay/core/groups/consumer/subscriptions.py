"""The topics that members of a KIP-848 group subscribe to, by name or by a pattern.

A pattern never matches internal topics; a member has to name them. The matches of a pattern are kept until
the topics of the cluster change, because every new target assignment needs them.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

from forebay.core.cluster.topics import INTERNAL_TOPICS
from forebay.core.groups.consumer.members import ConsumerMember
from forebay.core.groups.consumer.patterns import Pattern
from forebay.core.groups.group import Context, TopicsView


class Subscriptions:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._matches: dict[str, frozenset[str]] = {}
        self._topics: TopicsView | None = None
        """The topics that the matches are of."""

    def topics_of(self, member: ConsumerMember) -> frozenset[str]:
        """The existing topics that a member subscribes to."""
        named = frozenset(name for name in member.topic_names if name in self._context.topics)
        return named if member.topic_regex is None else named | self._matching(member.topic_regex)

    def means(self, member: ConsumerMember, topic: str) -> bool:
        if topic in member.topic_names:
            return True
        return member.topic_regex is not None and topic in self._matching(member.topic_regex)

    def _matching(self, text: str) -> frozenset[str]:
        if self._topics is not self._context.topics:
            self._topics = self._context.topics
            self._matches.clear()
        found = self._matches.get(text)
        if found is None:
            matches = Pattern(text).matches
            names = (name for name in self._context.topics if name not in INTERNAL_TOPICS)
            found = self._matches[text] = frozenset(name for name in names if matches(name))
        return found

    def metadata_hash(self, members: Iterable[ConsumerMember]) -> int:
        """Another one if any topic of theirs has come, gone or grown."""
        names = frozenset[str]().union(*(self.topics_of(member) for member in members))
        return topics_hash(names, self._context.topics)


def topics_hash(names: Iterable[str], topics: TopicsView) -> int:
    """Of the existing topics among these."""
    digest = blake2b(digest_size=8)
    for name in sorted(names):
        info = topics.get(name)
        if info is not None:
            digest.update(info.topic_id + info.partitions.to_bytes(4, "big"))
    return int.from_bytes(digest.digest(), "big", signed=True)
