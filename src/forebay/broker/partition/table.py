"""The partitions that this broker holds, looked up by name or by id.

A partition whose log cannot be opened is kept with the reason: requests for it are refused with that reason,
and all other partitions are served. A partition that is still being opened, or whose log is lent to a thread,
cannot be used: look-ups refuse it with an error that clients try again after, and it is not among `all`. One
that waits for its turn to be opened, or that nobody has used yet, is opened next (`opening/`), and requests
of clients wait for it (`opening_waits.py`). `assignment/` writes this table.
"""

from __future__ import annotations

from collections.abc import Callable

from forebay.broker.partition.long_polls import release
from forebay.broker.partition.opening.opening_queue import OpeningQueue
from forebay.broker.partition.partition import Partition
from forebay.coordination.metadata import Metadata
from forebay.core.cluster.image import ClusterImage
from forebay.core.cluster.images.topic_folds import Stop
from forebay.core.cluster.images.topic_image import TopicImage
from forebay.core.cluster.topics.topic_requests import NamesView
from forebay.core.topic_partition import TopicPartition
from forebay.core.views.catalog import source_of
from forebay.errors import ErrorCode, KafkaError, StorageError

_REMOTE = "remote.storage.enable"


class PartitionTable:
    __slots__ = ("_lease_valid", "_metadata", "_node_id", "broken", "lent", "opening", "usable")

    def __init__(self, metadata: Metadata, *, node_id: int, lease_valid: Callable[[], bool]) -> None:
        """`lease_valid` says whether this broker's lease holds at this moment."""
        self._metadata = metadata
        self._node_id = node_id
        self._lease_valid = lease_valid
        self.usable: dict[TopicPartition, Partition] = {}
        """Open, and used by the event loop. Only `Assignment` writes this and the next two."""
        self.lent: dict[TopicPartition, Partition] = {}
        """Followed here, and a thread works on their logs."""
        self.broken: dict[TopicPartition, StorageError] = {}
        """Assigned to this broker, and why they could not be opened."""
        self.opening = OpeningQueue()
        """Assigned to this broker, and not open yet."""

    @property
    def image(self) -> ClusterImage:
        return self._metadata.image

    # -- look-ups --------------------------------------------------------------------------------------

    def get(self, topic: str, index: int) -> Partition:
        """A partition that this broker leads; raises KafkaError with a code that sends clients elsewhere."""
        partition = self.usable.get((topic, index))
        if partition is None:
            raise self._absent(topic, index)
        if not partition.is_leader:
            raise partition.not_leader()
        return partition

    def get_with_lease(self, topic: str, index: int) -> Partition:
        """Like `get`, refused without a valid lease: another broker may lead it without this one knowing."""
        partition = self.get(topic, index)
        if not self._lease_valid():
            raise partition.not_leader()
        return partition

    def held(self, topic: str, index: int) -> Partition:
        """A partition that this broker has a replica of, whichever broker leads it."""
        partition = self.usable.get((topic, index))
        if partition is None:
            raise self._absent(topic, index)
        return partition

    def by_id(self, topic_id: bytes, index: int) -> Partition:
        """Like `get`, for requests that name the topic by its id."""
        return self.get(self.name_of(topic_id), index)

    def source_of(self, name: str) -> str:
        """The topic that is read under this name: for a view its source, for a topic itself."""
        image = self._metadata.image
        return source_of(image, name) if image.views else name

    def name_of(self, topic_id: bytes) -> str:
        image = self._metadata.image
        topic = image.topic_names.get(topic_id)
        if topic is None and topic_id in image.view_names:
            raise NamesView(image, image.view_names[topic_id])
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, f"no topic has the id {topic_id.hex()}")
        return topic

    def topic_of(self, partition: Partition) -> TopicImage:
        """The topic of a partition; raises KafkaError if it is gone."""
        topic = self._metadata.image.topic_by_id(partition.topic_id)
        if topic is None:
            raise partition.not_leader()
        return topic

    def removed_into(self, topic: str, index: int) -> Stop | None:
        """Which partition takes the messages for one that was folded and is gone; None if there was none."""
        image = self._metadata.image.topics.get(topic)
        if image is None or index < len(image.partitions):
            return None
        return image.folded_into(index)

    def _absent(self, topic: str, index: int) -> KafkaError:
        """Why there is no such partition to use here."""
        broken = self.broken.get((topic, index))
        if broken is not None:
            return broken
        image = self._metadata.image
        if topic in image.views:
            return NamesView(image, topic)
        if topic in image.unreadable.topics:
            return KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"what is stored of topic {topic!r} cannot be read"
            )
        if image.partition(topic, index) is not None:
            self.opening.ask_for((topic, index))
            return KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"partition {index} of topic {topic!r} is on other brokers, or not ready here; "
                "ask for the metadata again",
            )
        return KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {index} of topic {topic!r}"
        )

    def is_coming(self, key: TopicPartition) -> bool:
        """True if this broker is to lead a partition that is not open yet."""
        if key in self.usable or key in self.broken or key in self.lent:
            return False
        state = self._metadata.image.partition(*key)
        return state is not None and state.leader == self._node_id and not state.unreadable

    def unused_epoch(self, topic: str, index: int) -> int | None:
        """The leader epoch of a partition that this broker surely leads and nobody has used yet, so that it
        is empty; None for all others. One whose topic has an object store may have messages there."""
        key = (topic, index)
        if not self.opening.leaves_unused or key in self.opening or not self.is_coming(key):
            return None
        image = self._metadata.image
        state = image.partition(topic, index)
        if state is None or state.unsettled or _REMOTE in image.topic_config(topic).overrides:
            return None
        return state.leader_epoch if self._lease_valid() else None

    # -- all of them -----------------------------------------------------------------------------------

    def all(self) -> list[Partition]:
        """The partitions that may be used at this moment."""
        return list(self.usable.values())

    def release_long_polls(self) -> None:
        """Have the fetches that wait answered with what there is: the next ones are looked at anew."""
        for partition in self.all():
            release(partition)

    def __len__(self) -> int:
        """How many partitions are open here, those with lent logs included."""
        return len(self.usable) + len(self.lent)

    @property
    def unused(self) -> int:
        """How many partitions this broker leads that nobody has used yet, and that are therefore not open."""
        if not self.opening.leaves_unused:
            return 0
        assigned = sum(len(topic.partitions) for topic in self._metadata.image.topics.values())
        return max(assigned - len(self) - len(self.broken) - len(self.opening.unchecked), 0)

    def is_damaged(self, key: TopicPartition) -> bool:
        """True if a partition is among `damaged`."""
        partition = self.usable.get(key)
        return key in self.broken or (partition is not None and partition.log.report.lacks_messages)

    def damaged(self) -> set[TopicPartition]:
        """Partitions that cannot be opened here, or that lack messages which no crash can have taken."""
        lossy = {key for key, partition in self.usable.items() if partition.log.report.lacks_messages}
        return lossy | self.broken.keys()
