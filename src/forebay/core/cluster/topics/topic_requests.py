"""Administrators' requests about topics, decided on an image: the changes to write, or the error to answer.

Nothing is written here. A plan may be made twice (when another writer was faster) or discarded (when the
client only wanted to validate the request).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import field, replace

from forebay.config import BrokerConfig, validate_topic_override
from forebay.core.cluster.image import ClusterImage
from forebay.core.cluster.image_changes import Change, ConfigOwner, ConfigPut, TopicDeleted, TopicPut
from forebay.core.cluster.images.topic_folds import Folding
from forebay.core.cluster.images.topic_image import Adopted, TopicImage, TopicRecord
from forebay.core.cluster.images.view_image import ViewDeleted
from forebay.core.cluster.internal_names import INTERNAL_TOPICS
from forebay.core.cluster.partition_state import PartitionState
from forebay.core.cluster.placement import Assignment, place, staying
from forebay.core.cluster.topics.more_partitions import check_not_taken_away, check_settled, regrown
from forebay.errors import ConfigError, ErrorCode, KafkaError
from forebay.lazy import dataclass, load

_TIERED = "remote.storage.enable"
_TIER_RULES = "forebay.core.cluster.topics.tier_rules"
NAME_LENGTH_MAX = 249
PARTITIONS_MAX = 10_000
"""The maximum for one topic."""
DEFAULT = -1
"""Asks for the broker's default count."""
_REPLICAS_WANTED = 3
KEEPS_COUNT = "keeps its number of partitions: brokers find by it what they have stored"

_NAME = re.compile(r"[a-zA-Z0-9._-]+")


class NamesView(KafkaError):
    """A view was named where a topic is required."""

    def __init__(self, image: ClusterImage, name: str) -> None:
        view = image.views.get(name) or image.fills[name]
        source = image.topic_names.get(view.source_id)
        hint = "" if source is None else f"; its messages are those of topic {source!r}"
        super().__init__(
            ErrorCode.POLICY_VIOLATION, f"{name!r} is a view, which can only be read and deleted{hint}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    name: str
    topic_id: bytes
    num_partitions: int = DEFAULT
    replication_factor: int = DEFAULT
    assignment: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    """Partition to replicas, when the administrator chose them."""
    configs: Mapping[str, str | None] = field(default_factory=dict)
    adopted: tuple[Adopted, ...] = ()
    """Where the partitions go on, if the topic was restored from the object store."""


def validate_topic_name(name: str) -> None:
    if not name:
        raise _invalid_name("a topic name cannot be empty")
    if name in (".", ".."):
        raise _invalid_name(f"a topic cannot be called {name!r}")
    if len(name) > NAME_LENGTH_MAX:
        raise _invalid_name(f"a topic name has at most {NAME_LENGTH_MAX} characters, this one {len(name)}")
    if not _NAME.fullmatch(name):
        raise _invalid_name(f"{name!r}: a topic name is made of ASCII letters, digits, '.', '_' and '-'")


def unknown_topic_code(name: str) -> ErrorCode:
    """The error for a topic that does not exist: a different one if no topic can have that name."""
    try:
        validate_topic_name(name)
    except KafkaError as error:
        return error.code
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def check_new_name(image: ClusterImage, name: str) -> None:
    """Raise KafkaError if the name is taken: topics and views share one namespace."""
    validate_topic_name(name)
    for kind, names in (("topic", image.topics), ("view", image.views)):
        if name in names:
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"{kind} {name!r} exists already")
    if name in image.unreadable.topics or name in image.unreadable.views:
        raise KafkaError(
            ErrorCode.TOPIC_ALREADY_EXISTS, f"{name!r} exists, but what is stored of it cannot be read"
        )
    _check_collision(image, name)


def create_topic(image: ClusterImage, broker: BrokerConfig, new: NewTopic) -> list[Change]:
    check_new_name(image, new.name)
    overrides = _check_configs(new.configs)
    _check_tiers(broker, new.name, overrides)
    if new.adopted:
        load(f"{_TIER_RULES}:check_adopted")(image, new)
    record = TopicRecord(
        name=new.name,
        topic_id=new.topic_id,
        assignment=_assignment(image, broker, new),
        restored=image.restore.generation,
        adopted=new.adopted,
    )
    changes: list[Change] = [TopicPut(record=record)]
    if overrides or image.topic_config(new.name).overrides:
        changes.append(ConfigPut(owner=ConfigOwner.TOPIC, name=new.name, overrides=overrides))
    return changes


def delete_topic(
    image: ClusterImage, broker: BrokerConfig, name: str, *, deleted_ms: int = 0
) -> list[Change]:
    """`deleted_ms`: the present wall time."""
    check_deletion(broker)
    topic = existing_topic(image, name)
    check_own(name, "cannot be deleted: brokers keep the state of groups or transactions there")
    _check_unseen(image, topic)
    changes: list[Change] = [TopicDeleted(name=name, topic_id=topic.topic_id, deleted_ms=deleted_ms)]
    if name in image.fills:
        changes.append(ViewDeleted(name=name))
    if image.topic_config(name).overrides:
        changes.append(ConfigPut(owner=ConfigOwner.TOPIC, name=name, overrides={}))
    return changes


def _check_unseen(image: ClusterImage, topic: TopicImage) -> None:
    shown_by = (*image.views.values(), *image.fills.values())
    views = sorted(view.name for view in shown_by if view.source_id == topic.topic_id)
    if views:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"topic {topic.name!r} is the source of {', '.join(map(repr, views))}: delete the views first",
        )


def check_deletion(broker: BrokerConfig) -> None:
    if not broker.topics.delete_enable:
        raise KafkaError(
            ErrorCode.TOPIC_DELETION_DISABLED, "topics cannot be deleted: delete.topic.enable=false"
        )


def create_partitions(
    image: ClusterImage, name: str, count: int, assignment: Sequence[Sequence[int]] | None
) -> list[Change]:
    """Create more partitions, up to `count` open ones; `assignment` gives the replicas of the new ones.

    Closed partitions are opened again before new ones are created. Topics that are filled from this one get
    as many new ones, in the same change.
    """
    topic = existing_topic(image, name)
    check_own(name, KEEPS_COUNT)
    check_not_filled(image, name)
    current = len(topic.partitions)
    _check_count(topic, count)
    new_count = max(count - current, 0)
    added: Assignment = ()
    if assignment is not None:
        added = _check_more(image, topic, new_count, assignment)
    elif new_count:
        added = _place_more(image, topic, new_count)
    folding = topic.record.folding
    if folding is not None:
        folding = regrown(folding, topic.closed_from, count)
    changes: list[Change] = [TopicPut(record=_with_more(image, topic, added, folding))]
    fills = filled_from(image, topic) if new_count else []
    changes += [
        TopicPut(record=_with_more(image, each, _place_more(image, each, new_count))) for each in fills
    ]
    return changes


def _with_more(
    image: ClusterImage, topic: TopicImage, added: Assignment, folding: Folding | None = None
) -> TopicRecord:
    record = topic.record
    if not any(state.unsettled for state in topic.partitions):
        # New partitions need no election by comparing logs.
        record = replace(record, restored=image.restore.generation)
    return replace(record, assignment=(*record.assignment, *added), folding=folding)


def filled_from(image: ClusterImage, topic: TopicImage) -> list[TopicImage]:
    """The materialized views of a topic."""
    fills = (view for view in image.fills.values() if view.source_id == topic.topic_id)
    return [image.topics[view.name] for view in fills if view.name in image.topics]


def check_not_filled(image: ClusterImage, name: str) -> None:
    """Refuse to change the number of partitions of a materialized view."""
    if name in image.fills:
        source = image.topic_names.get(image.fills[name].source_id)
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"{name!r} is a materialized view: it has as many partitions as {source!r}, and grows with it",
        )


def existing_topic(image: ClusterImage, name: str) -> TopicImage:
    topic = image.topics.get(name)
    if topic is None and name in image.views:
        raise NamesView(image, name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
    return topic


def existing_partition(image: ClusterImage, topic: str, index: int) -> tuple[TopicImage, PartitionState]:
    owner = existing_topic(image, topic)
    state = image.partition(topic, index)
    if state is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic!r} has no partition {index}")
    if state.unreadable:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"the stored state of {topic}-{index} cannot be read: repair it in the store first",
        )
    return owner, state


def check_own(name: str, problem: str) -> None:
    """Refuse what would break an internal topic. (In Kafka, only the tools refuse it.)"""
    if name in INTERNAL_TOPICS:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name!r} {problem}")


def _check_collision(image: ClusterImage, name: str) -> None:
    # Metric names cannot hold dots, so two such topics would share theirs.
    if "." not in name and "_" not in name:
        return
    folded = name.replace(".", "_")
    for other in (*image.topics, *image.views):
        if other.replace(".", "_") == folded:
            raise _invalid_name(f"topic {name!r} differs from topic {other!r} only by '.' and '_'")


def _check_configs(configs: Mapping[str, str | None]) -> dict[str, str]:
    overrides: dict[str, str] = {}
    for name, value in configs.items():
        if value is None:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{name}: a new topic needs a value or no such entry")
        check_topic_config(name, value)
        overrides[name] = value
    return overrides


def _check_tiers(broker: BrokerConfig, name: str, overrides: Mapping[str, str]) -> None:
    if _TIERED not in overrides:
        return
    try:
        load(f"{_TIER_RULES}:check_tiers")(name, broker, overrides, {})
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None


def check_topic_config(name: str, value: str) -> None:
    try:
        validate_topic_override(name, value)
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None


def _assignment(image: ClusterImage, broker: BrokerConfig, new: NewTopic) -> Assignment:
    if new.assignment:
        return _manual_assignment(image, new)
    partitions = broker.topics.num_partitions if new.num_partitions == DEFAULT else new.num_partitions
    if not 1 <= partitions <= PARTITIONS_MAX:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS, f"a topic has 1 to {PARTITIONS_MAX} partitions, not {partitions}"
        )
    replicas = _replication_factor(image, broker, new.replication_factor)
    return place(image, partitions=partitions, replication_factor=replicas)


def default_replicas(image: ClusterImage) -> int:
    """The number of replicas of a partition if the request gives none."""
    return min(_REPLICAS_WANTED, len(staying(image)) or len(image.brokers))


def _replication_factor(image: ClusterImage, broker: BrokerConfig, asked: int) -> int:
    brokers = len(image.brokers)
    wanted = broker.topics.replication_factor if asked == DEFAULT else asked
    if wanted == DEFAULT and brokers:
        return default_replicas(image)
    if not 1 <= wanted <= brokers:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"replication factor {wanted} is not possible with {brokers} live broker(s)",
        )
    return wanted


def _manual_assignment(image: ClusterImage, new: NewTopic) -> Assignment:
    if new.num_partitions != DEFAULT or new.replication_factor != DEFAULT:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "with assignments given, the number of partitions and the replication factor must be -1",
        )
    count = len(new.assignment)
    if count > PARTITIONS_MAX:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"a topic has at most {PARTITIONS_MAX} partitions")
    if sorted(new.assignment) != list(range(count)):
        raise _bad_assignment(f"partitions must be numbered 0 to {count - 1} without a gap")
    first = new.assignment[0]
    return tuple(_check_replicas(image, new.assignment[index], len(first)) for index in range(count))


def _check_replicas(image: ClusterImage, replicas: Sequence[int], expected: int) -> tuple[int, ...]:
    if not replicas:
        raise _bad_assignment("a partition needs at least one replica")
    if len(set(replicas)) != len(replicas):
        raise _bad_assignment(f"replicas {list(replicas)} name a broker twice")
    if len(replicas) != expected:
        raise _bad_assignment(f"{len(replicas)} replicas for one partition, {expected} for another")
    unknown = [broker_id for broker_id in replicas if broker_id not in image.brokers]
    if unknown:
        raise _bad_assignment(f"no live broker {', '.join(map(str, unknown))}")
    return tuple(replicas)


def _check_count(topic: TopicImage, count: int) -> None:
    open_count, closed_count = topic.closed_from, len(topic.partitions) - topic.closed_from
    if count > PARTITIONS_MAX:
        problem = f"a topic has at most {PARTITIONS_MAX} partitions, {count} were asked for"
    elif count <= open_count:
        closed = f" and {closed_count} that are being folded" if closed_count else ""
        problem = f"the topic has {open_count} partition(s){closed} already"
    elif topic.record.folding is not None:
        check_settled(topic)
        check_not_taken_away(topic, count)
        return
    else:
        return
    raise KafkaError(ErrorCode.INVALID_PARTITIONS, problem)


def _place_more(image: ClusterImage, topic: TopicImage, count: int) -> Assignment:
    replicas = topic.replication_factor
    if replicas > len(image.brokers):
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"new partitions need {replicas} brokers, {len(image.brokers)} are alive",
        )
    beside = [partition.target for partition in topic.partitions]
    return place(image, partitions=count, replication_factor=replicas, beside=beside)


def _check_more(
    image: ClusterImage, topic: TopicImage, count: int, assignment: Sequence[Sequence[int]]
) -> Assignment:
    if len(assignment) != count:
        raise _bad_assignment(f"{count} partition(s) are added, but {len(assignment)} assignment(s) given")
    return tuple(_check_replicas(image, replicas, topic.replication_factor) for replicas in assignment)


def _invalid_name(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, message)


def _bad_assignment(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
