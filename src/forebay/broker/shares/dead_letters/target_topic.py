"""The topic for the dead letters of a share group: checks if it may take them, and creates it."""

from __future__ import annotations

from typing import NamedTuple

from forebay.broker.cluster.topic_changes import TopicChanges
from forebay.broker.live_config import LiveConfig
from forebay.broker.shares.dead_letters.circles import origins
from forebay.config import TopicConfig
from forebay.coordination.metadata import Metadata
from forebay.core.topic_partition import TopicPartition
from forebay.errors import ErrorCode, KafkaError

TAKES_DEAD_LETTERS = "errors.deadletterqueue.group.enable"


class Target(NamedTuple):
    topic_id: bytes
    partition: int
    revision: int
    """The revision of the image in which it was found."""
    bytes_max: int
    """The largest batch that it accepts."""


class DeadLetterTargets:
    def __init__(self, metadata: Metadata, settings: LiveConfig, topic_changes: TopicChanges) -> None:
        self._metadata = metadata
        self._settings = settings
        self._topic_changes = topic_changes

    async def find(self, name: str, source: TopicPartition) -> Target:
        """The target of a partition's dead letters. Raises KafkaError that says what to do."""
        source_topic, source_partition = source
        if name in origins(self._metadata.image, source_topic):
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"the group reads its dead-letter topic {name!r} itself, and would be given each dead letter "
                "again, for ever; name another topic",
            )
        rules = self._settings.current.groups.share
        prefix = rules.dead_letter_topic_prefix
        if not name.startswith(prefix):
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"the dead-letter topic {name!r} must begin with {prefix!r}, as brokers are set",
            )
        if name not in self._metadata.image.topics:
            await self._create(name, may_create=rules.dead_letter_topics_are_created)
        image = self._metadata.image
        topic = image.topics.get(name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r} yet")
        if name in image.fills:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, f"{name!r} is a view; name another topic")
        config = TopicConfig.resolve(self._settings.current, image.topic_config(name).overrides)
        if not config.takes_dead_letters:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"the topic {name!r} takes no dead letters; set {TAKES_DEAD_LETTERS}=true for it",
            )
        if config.compacted:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"the topic {name!r} is compacted, which deletes dead letters; set cleanup.policy=delete",
            )
        index = source_partition % topic.closed_from
        return Target(topic.topic_id, index, image.revision, config.max_message_bytes)

    async def _create(self, name: str, *, may_create: bool) -> None:
        if not may_create:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"the dead-letter topic {name!r} does not exist; create it",
            )
        try:
            configs = {TAKES_DEAD_LETTERS: "true", "cleanup.policy": "delete"}
            await self._topic_changes.create(name, configs=configs)
        except KafkaError as error:
            if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
