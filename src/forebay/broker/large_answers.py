"""Answers that are large although their requests are small: their sizes, and the parts they are made in.

`core/large_requests/answer_parts.py` says what a part is. Topics are those of the image, groups and
transactions those that this broker coordinates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

from forebay.core.large_requests.answer_parts import (
    LISTED_MAX,
    PARTITIONS_MAX,
    TOPICS_MAX,
    ListedPart,
    TopicsPart,
    listed_parts,
    partition_slices,
    topic_parts,
)
from forebay.core.large_requests.division import weight
from forebay.core.views.catalog import readable_topic, readable_topic_by_id, readable_topics
from forebay.errors import ErrorCode
from forebay.wire.api_keys import ApiKey
from forebay.wire.fields import changed
from forebay.wire.messages.metadata import is_by_id

if TYPE_CHECKING:
    from forebay.broker.coordinators.groups import Groups
    from forebay.broker.coordinators.transactions import Transactions
    from forebay.core.cluster.image import ClusterImage
    from forebay.core.cluster.images.topic_image import TopicImage

_PER_TOPIC = 4
"""The elements that a topic counts for besides its partitions."""

AnswerPart = TopicsPart | ListedPart
Parts = Iterator[tuple[AnswerPart | None, Any]]
"""The parts of an answer, each with the request to make it of. None: all of that request."""


class Coordinators(Protocol):
    @property
    def groups(self) -> Groups: ...
    @property
    def transactions(self) -> Transactions: ...


class LargeAnswers:
    def __init__(self, image: Callable[[], ClusterImage], coordinators: Coordinators) -> None:
        self._image = image
        self._coordinators = coordinators

    def elements(self, api_key: int, version: int, request: Any) -> int:
        """How many elements the answer has; 0 if there are so few that it is made at once."""
        if api_key != ApiKey.METADATA:
            listed = sum(len(names) for _, names in self._listed(api_key))
            return listed if listed > LISTED_MAX else 0
        topics = list(
            readable_topics(self._image()) if _wants_all(version, request) else self._named(request)
        )
        partitions = sum(len(topic.partitions) for topic in topics)
        if partitions <= PARTITIONS_MAX and len(topics) <= TOPICS_MAX:
            return 0
        return partitions + _PER_TOPIC * len(topics)

    def parts(self, api_key: int, version: int, request: Any) -> Parts:
        if api_key != ApiKey.METADATA:
            filters = weight(request, LISTED_MAX)
            for shard, names in self._listed(api_key):
                for listed in listed_parts(shard, names, filters):
                    yield listed, request
        elif _wants_all(version, request):
            sizes = [(topic.name, len(topic.partitions)) for topic in readable_topics(self._image())]
            for topics in topic_parts(sizes):
                yield topics, request
        else:
            yield from self._named_parts(request)

    def _named_parts(self, request: Any) -> Parts:
        if sum(len(topic.partitions) for topic in self._named(request)) <= PARTITIONS_MAX:
            yield None, request
            return
        for wanted in request.topics:
            alone, found = changed(request, topics=[wanted]), self._find(wanted)
            if found is None or len(found.partitions) <= PARTITIONS_MAX:
                yield None, alone
                continue
            for partitions in partition_slices(len(found.partitions)):
                yield TopicsPart(None, partitions), alone

    def _named(self, request: Any) -> Iterator[TopicImage]:
        return (found for wanted in request.topics if (found := self._find(wanted)) is not None)

    def _find(self, wanted: Any) -> TopicImage | None:
        if is_by_id(wanted):
            return readable_topic_by_id(self._image(), wanted.topic_id)
        return readable_topic(self._image(), wanted.name or "")

    def _listed(self, api_key: int) -> Iterator[tuple[int, list[str]]]:
        """The names of what this broker coordinates, by shard. Nothing if it cannot answer for all of it."""
        if api_key == ApiKey.LIST_GROUPS:
            groups = self._coordinators.groups.coordinator
            if groups.availability == ErrorCode.NONE:
                for shard in groups.ready_shards():
                    yield shard.partition.index, list(shard.machine.groups)
        else:
            transactions = self._coordinators.transactions.coordinator
            if transactions.availability == ErrorCode.NONE:
                for found in transactions.ready_shards():
                    yield found.partition.index, found.machine.transactional_ids


def _wants_all(version: int, request: Any) -> bool:
    """Version 0 of Metadata cannot say null: an empty list means every topic."""
    return request.topics is None or (version == 0 and not request.topics)
