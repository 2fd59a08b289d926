"""Topics, groups and offsets, one call each; every call waits for its answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Self

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from forebay.client.errors import ClientError, error_of, from_kafka, kafka_errors
from forebay.client.presets import Settings, admin_settings
from forebay.lazy import dataclass

REQUEST_SECONDS = 30.0
_INTERNAL_TOPICS = frozenset(
    {"__consumer_offsets", "__forebay_moves", "__share_group_state", "__transaction_state"}
)
"""Kafka's internal topics."""

_SOURCE = "forebay.view.source"
_WHERE = "forebay.view.where"
_SELECT = "forebay.view.select"
_KEEP_TOMBSTONES = "forebay.view.keep.tombstones"
_MATERIALIZE = "forebay.view.materialize"
_DESCRIBED_AT_ONCE = 50

Partition = tuple[str, int]
"""A topic's name and the index of one of its partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupInfo:
    group: str
    state: str
    """Kafka's name: Stable, Empty, ..."""
    type: str
    """Classic or Consumer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewInfo:
    source: str
    """The topic that the view shows."""
    where: str | None
    """The condition on its messages; None: all."""
    select: str | None
    """The columns of the values; None: unchanged."""
    keep_tombstones: bool
    materialized: bool = False
    """True if it is a topic that brokers fill."""


class Admin:
    def __init__(self, servers: str | Sequence[str], *, settings: Settings | None = None) -> None:
        with kafka_errors():
            self._raw = AdminClient(admin_settings(servers, settings))

    @property
    def raw(self) -> AdminClient:
        """librdkafka's admin client, for everything that is not here."""
        return self._raw

    # -- topics ----------------------------------------------------------------------------------------

    def topics(self) -> dict[str, int]:
        """The number of partitions of each topic, without internal topics."""
        with kafka_errors():
            found = self._raw.list_topics(timeout=REQUEST_SECONDS).topics
        return {name: len(topic.partitions) for name, topic in found.items() if name not in _INTERNAL_TOPICS}

    def create_topic(
        self,
        name: str,
        *,
        partitions: int | None = None,
        replication_factor: int | None = None,
        config: Mapping[str, str] | None = None,
        exist_ok: bool = False,
    ) -> None:
        """Create a topic. Omitted values come from the broker's settings."""
        topic = NewTopic(
            name,
            num_partitions=-1 if partitions is None else partitions,
            replication_factor=-1 if replication_factor is None else replication_factor,
            config=dict(config or {}),
        )
        ignored = KafkaError.TOPIC_ALREADY_EXISTS if exist_ok else None
        _answer(self._raw.create_topics([topic], request_timeout=REQUEST_SECONDS)[name], ignored)

    def delete_topic(self, name: str, *, missing_ok: bool = False) -> None:
        ignored = KafkaError.UNKNOWN_TOPIC_OR_PART if missing_ok else None
        _answer(self._raw.delete_topics([name], request_timeout=REQUEST_SECONDS)[name], ignored)

    def add_partitions(self, topic: str, total: int) -> None:
        """Grow a topic to `total` partitions."""
        _answer(self._raw.create_partitions([NewPartitions(topic, total)])[topic])

    def topic_config(self, topic: str) -> dict[str, str]:
        """Every setting of a topic with its value."""
        return self._config(ConfigResource(ResourceType.TOPIC, topic))

    def set_topic_config(self, topic: str, config: Mapping[str, str | None]) -> None:
        """Change these settings, None for back to the default; the others stay."""
        self._set_config(ResourceType.TOPIC, topic, config)

    def _config(self, resource: ConfigResource) -> dict[str, str]:
        entries = _answer(self._raw.describe_configs([resource])[resource])
        return {name: entry.value for name, entry in entries.items()}

    def _set_config(self, kind: ResourceType, name: str, config: Mapping[str, str | None]) -> None:
        entries = [
            ConfigEntry(
                key,
                value or "",
                incremental_operation=AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET,
            )
            for key, value in config.items()
        ]
        resource = ConfigResource(kind, name, incremental_configs=entries)
        _answer(self._raw.incremental_alter_configs([resource])[resource])

    def start_offsets(self, topic: str) -> dict[int, int]:
        """The first offset of each partition."""
        return self._offsets(topic, OffsetSpec.earliest())

    def end_offsets(self, topic: str) -> dict[int, int]:
        """The offset that the next message of each partition will get."""
        return self._offsets(topic, OffsetSpec.latest())

    def _offsets(self, topic: str, spec: OffsetSpec) -> dict[int, int]:
        count = self.topics().get(topic)
        if count is None:
            raise ClientError(f"there is no topic {topic!r}", code=KafkaError.UNKNOWN_TOPIC_OR_PART)
        asked = {TopicPartition(topic, index): spec for index in range(count)}
        answers = self._raw.list_offsets(asked, request_timeout=REQUEST_SECONDS)
        return {each.partition: _answer(future).offset for each, future in answers.items()}

    # -- views -----------------------------------------------------------------------------------------

    def create_view(
        self,
        name: str,
        *,
        source: str,
        where: str | None = None,
        select: str | None = None,
        keep_tombstones: bool = False,
        materialize: bool = False,
        replication_factor: int | None = None,
        config: Mapping[str, str] | None = None,
        exist_ok: bool = False,
    ) -> None:
        """A topic that shows the messages of `source` for which the condition `where` is true.

        `select` builds their values from these columns. Both are SQL. `materialize` stores them in a separate
        topic, which brokers fill; `replication_factor` and `config` apply to that topic.
        """
        query = {_SOURCE: source, _WHERE: where, _SELECT: select}
        settings = {key: value for key, value in query.items() if value is not None}
        if keep_tombstones:
            settings[_KEEP_TOMBSTONES] = "true"
        if materialize:
            settings |= {_MATERIALIZE: "true", **(config or {})}
        elif config or replication_factor:
            raise ValueError("only a view that is materialized has replicas and settings of its own")
        self.create_topic(name, replication_factor=replication_factor, config=settings, exist_ok=exist_ok)

    def views(self) -> dict[str, ViewInfo]:
        """All views, by name."""
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in self.topics()]
        found: dict[str, ViewInfo] = {}
        for first in range(0, len(resources), _DESCRIBED_AT_ONCE):
            asked = self._raw.describe_configs(resources[first : first + _DESCRIBED_AT_ONCE])
            for resource, future in asked.items():
                entries = _answer(future, KafkaError.UNKNOWN_TOPIC_OR_PART) or {}
                info = _view_info({name: entry.value for name, entry in entries.items()})
                if info is not None:
                    found[resource.name] = info
        return found

    def delete_view(self, name: str, *, missing_ok: bool = False) -> None:
        """Delete a view. Its source keeps all messages. The name of a topic is refused."""
        ignored = KafkaError.UNKNOWN_TOPIC_OR_PART if missing_ok else None
        resource = ConfigResource(ResourceType.TOPIC, name)
        entries = _answer(self._raw.describe_configs([resource])[resource], ignored)
        if entries is None:
            return
        if _SOURCE not in entries:
            raise ClientError(f"{name!r} is a topic, not a view", code=KafkaError.INVALID_REQUEST)
        self.delete_topic(name, missing_ok=missing_ok)

    # -- groups ----------------------------------------------------------------------------------------

    def groups(self) -> list[GroupInfo]:
        found = _answer(self._raw.list_consumer_groups(request_timeout=REQUEST_SECONDS))
        if found.errors:
            raise from_kafka(error_of(found.errors[0]))
        return [
            GroupInfo(group=each.group_id, state=_words(each.state), type=_words(each.type))
            for each in found.valid
        ]

    def group_config(self, group: str) -> dict[str, str]:
        """Every setting of a group with its value. The group need not exist."""
        return self._config(ConfigResource(ResourceType.GROUP, group))

    def set_group_config(self, group: str, config: Mapping[str, str | None]) -> None:
        """Change these settings, None for back to the default; the others stay."""
        self._set_config(ResourceType.GROUP, group, config)

    def committed(self, group: str) -> dict[Partition, int]:
        """The committed offsets of a group: the next message that it will read of each partition."""
        asked = ConsumerGroupTopicPartitions(group)
        answers = self._raw.list_consumer_group_offsets([asked], request_timeout=REQUEST_SECONDS)
        answer = _answer(answers[group])
        return {
            (each.topic, each.partition): each.offset for each in answer.topic_partitions if each.offset >= 0
        }

    def lag(self, group: str) -> dict[Partition, int]:
        """The lag of a group, in offsets, in each partition that it has committed."""
        committed = self.committed(group)
        ends = {topic: self.end_offsets(topic) for topic in {topic for topic, _ in committed}}
        return {
            (topic, index): max(0, ends[topic].get(index, offset) - offset)
            for (topic, index), offset in committed.items()
        }

    def set_committed(self, group: str, offsets: Mapping[Partition, int]) -> None:
        """Set the offsets of a group without members."""
        positions = [TopicPartition(topic, index, offset) for (topic, index), offset in offsets.items()]
        asked = ConsumerGroupTopicPartitions(group, positions)
        answers = self._raw.alter_consumer_group_offsets([asked], request_timeout=REQUEST_SECONDS)
        for each in _answer(answers[group]).topic_partitions:
            if each.error is not None:
                raise from_kafka(each.error)

    def delete_group(self, group: str, *, missing_ok: bool = False) -> None:
        """Forget a group without members, and its offsets."""
        ignored = KafkaError.GROUP_ID_NOT_FOUND if missing_ok else None
        answers = self._raw.delete_consumer_groups([group], request_timeout=REQUEST_SECONDS)
        _answer(answers[group], ignored)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        """Does nothing: the garbage collector closes it. `with` works as for the other clients."""


def _answer(future: Future[Any], ignored: int | None = None) -> Any:
    try:
        return future.result()
    except KafkaException as exception:
        error = error_of(exception)
        if error.code() == ignored:
            return None
        raise from_kafka(error) from None


def _view_info(settings: Mapping[str, str | None]) -> ViewInfo | None:
    """The view that the settings of a topic describe; None if it is not a view."""
    if _SOURCE not in settings:
        return None
    return ViewInfo(
        source=settings[_SOURCE] or "",
        where=settings.get(_WHERE),
        select=settings.get(_SELECT),
        keep_tombstones=settings.get(_KEEP_TOMBSTONES) == "true",
        materialized=settings.get(_MATERIALIZE) == "true",
    )


def _words(value: Any) -> str:
    """Convert PREPARING_REBALANCING to the protocol's spelling: PreparingRebalancing."""
    return "".join(word.capitalize() for word in value.name.split("_"))
