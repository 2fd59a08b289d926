"""The topics that members of a KIP-848 group subscribe to, by name or by a pattern.

A pattern never matches internal topics; a member has to name them. Nor does it match topics that its member
may not describe, so two members with the same pattern may get different topics. Those are not even compared:
a pattern may take long for each name, and a member that may see no topic must not have all of them compared.

The topics of a pattern are kept until the topics of the cluster change, or the rules on who may see them,
because every new target assignment needs them. Whether a name matches never changes, so then only names are
compared that were not before. All is dropped with the last member that has the pattern, since members may
send another one each time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from hashlib import blake2b

from forebay.core.cluster.internal_names import INTERNAL_TOPICS
from forebay.core.groups.consumer.members import ConsumerMember, Subscription, Viewer
from forebay.core.groups.consumer.patterns import Pattern
from forebay.core.groups.group import Context, TopicsView


class Subscriptions:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._matches: dict[str, dict[str, bool]] = {}
        """By pattern, the names that were compared with it."""
        self._visible: dict[Viewer, frozenset[str]] = {}
        """The matches that a member may describe."""
        self._narrowed: set[Viewer] = set()
        """Those that may not describe all topics."""
        self._of: tuple[TopicsView, int] | None = None
        """The topics that were matched, and the visibility rules."""

    def topics_of(self, member: ConsumerMember) -> frozenset[str]:
        """The existing topics that a member subscribes to."""
        names, viewer = member.subscription
        named = frozenset(name for name in names if name in self._context.topics)
        return named if viewer is None else named | self._meant(viewer)

    def means(self, member: ConsumerMember, topic: str) -> bool:
        if topic in member.topic_names:
            return True
        viewer = member.subscription.viewer
        return viewer is not None and topic in self._meant(viewer)

    def _meant(self, viewer: Viewer) -> frozenset[str]:
        topics, visibility = self._context.topics, self._context.visibility
        if self._of is None or self._of[0] is not topics or self._of[1] != visibility.revision:
            self._of = (topics, visibility.revision)
            self._forget_names(topics)
            self._visible.clear()
            self._narrowed.clear()
        found = self._visible.get(viewer)
        if found is None:
            found = self._visible[viewer] = frozenset(self._matching(viewer))
        return found

    def _matching(self, viewer: Viewer) -> Iterator[str]:
        text, principal, host = viewer
        known, pattern = self._matches.setdefault(text, {}), None
        may_describe = self._context.visibility.may_describe
        for name in self._context.topics:
            if name in INTERNAL_TOPICS:
                continue
            if not may_describe(principal, host, name):
                self._narrowed.add(viewer)
                continue
            is_match = known.get(name)
            if is_match is None:
                pattern = pattern or Pattern(text)
                is_match = known[name] = pattern.matches(name)
            if is_match:
                yield name

    def _forget_names(self, topics: TopicsView) -> None:
        for text, known in self._matches.items():
            if len(known) > len(topics):
                self._matches[text] = {name: found for name, found in known.items() if name in topics}

    def metadata_hash(self, subscriptions: Iterable[Subscription]) -> int:
        """A hash that changes if a subscribed topic is created, deleted, extended, or hidden from members."""
        topics = self._context.topics
        names: set[str] = set()
        viewers: set[Viewer] = set()
        for named, viewer in subscriptions:
            names.update(name for name in named if name in topics)
            if viewer is not None:
                viewers.add(viewer)
        names.update(name for viewer in viewers for name in self._meant(viewer))
        narrowed = viewers & self._narrowed
        self._keep(viewers)
        whole = topics_hash(names, self._context.topics)
        if not narrowed:
            return whole
        text = repr([(viewer, sorted(self._meant(viewer))) for viewer in sorted(narrowed)])
        digest = blake2b(text.encode(), digest_size=8, key=whole.to_bytes(8, "big", signed=True))
        return int.from_bytes(digest.digest(), "big", signed=True)

    def _keep(self, viewers: Set[Viewer]) -> None:
        """Forget what no member needs any more."""
        patterns = {viewer.pattern for viewer in viewers}
        self._visible = {each: found for each, found in self._visible.items() if each in viewers}
        self._narrowed &= viewers
        self._matches = {each: found for each, found in self._matches.items() if each in patterns}


def topics_hash(names: Iterable[str], topics: TopicsView) -> int:
    """A hash of the existing topics among these."""
    digest = blake2b(digest_size=8)
    for name in sorted(names):
        info = topics.get(name)
        if info is not None:
            digest.update(info.topic_id + info.partitions.to_bytes(4, "big"))
    return int.from_bytes(digest.digest(), "big", signed=True)
