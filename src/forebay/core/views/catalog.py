"""The views of a cluster: the names that clients may read, and administrators' requests about views.

To clients a view is a topic. It has its own name and id, and shares everything else with its source:
partitions, leaders, epochs, offsets. A view whose source is gone is not readable. A materialized view is a
separate topic; only its creation is here.

It is created like a topic, by CreateTopics, with settings that no topic has, so every client and tool can do
it. It is deleted by DeleteTopics. DescribeConfigs shows the same settings. It cannot be altered. Decisions
are made on an image: the changes to write, or the error to answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, replace

from forebay.config import BrokerConfig
from forebay.core.cluster.image import ClusterImage
from forebay.core.cluster.image_changes import Change, TopicPut
from forebay.core.cluster.images.topic_image import TopicImage
from forebay.core.cluster.images.view_image import (
    FORMAT,
    FORMAT_MATERIALIZED,
    ViewDeleted,
    ViewImage,
    ViewPut,
)
from forebay.core.cluster.internal_names import INTERNAL_TOPICS
from forebay.core.cluster.topics.topic_requests import DEFAULT, NewTopic, check_new_name, create_topic
from forebay.errors import ErrorCode, KafkaError
from forebay.lazy import dataclass

SOURCE = "forebay.view.source"
WHERE = "forebay.view.where"
SELECT = "forebay.view.select"
KEEP_TOMBSTONES = "forebay.view.keep.tombstones"
MATERIALIZE = "forebay.view.materialize"

_PREFIX = "forebay.view."
_SETTINGS = frozenset({SOURCE, WHERE, SELECT, KEEP_TOMBSTONES, MATERIALIZE})
_BOOLEANS = {"true": True, "false": False}
_NOT_FILLED = ("forebay.delay.enable", "forebay.delay.ms")


@dataclass(frozen=True, slots=True, kw_only=True)
class NewView:
    name: str
    view_id: bytes
    source: str
    where: str | None = None
    select: str | None = None
    keep_tombstones: bool = False
    materialize: bool = False
    topic_id: bytes = b""
    """The id of the topic that is filled, if it is materialized."""
    configs: Mapping[str, str | None] = field(default_factory=dict)
    """The settings of that topic."""


def names_view_settings(configs: Iterable[str]) -> bool:
    """True if a request for a new topic means a view."""
    return any(key.startswith(_PREFIX) for key in configs)


def names_only_view_settings(keys: Iterable[str]) -> bool:
    return all(key.startswith(_PREFIX) for key in keys)


def new_view(name: str, view_id: bytes, configs: Mapping[str, str | None], topic_id: bytes = b"") -> NewView:
    """The view that a request for a new topic with these settings means. Raises KafkaError."""
    own = {key: value for key, value in configs.items() if key in _SETTINGS}
    others = {key: value for key, value in configs.items() if key not in _SETTINGS}
    materialize = _boolean(own, MATERIALIZE)
    unknown = sorted(key for key in others if not materialize or key.startswith(_PREFIX))
    if unknown:
        raise _bad_config(f"a view has no setting {', '.join(unknown)}: it is as its source is set")
    source = own.get(SOURCE)
    if not source:
        raise _bad_config(f"a view needs {SOURCE}, the topic that it shows")
    for key in _NOT_FILLED:
        if key in others:
            raise _bad_config(f"{key} is for topics that producers write to: set it for {source!r}")
    return NewView(
        name=name,
        view_id=view_id,
        source=source,
        where=own.get(WHERE) or None,
        select=own.get(SELECT) or None,
        keep_tombstones=_boolean(own, KEEP_TOMBSTONES),
        materialize=materialize,
        topic_id=topic_id,
        configs=others,
    )


def _boolean(settings: Mapping[str, str | None], key: str) -> bool:
    text = (settings.get(key) or "false").lower()
    if text not in _BOOLEANS:
        raise _bad_config(f"{key} is true or false, not {text!r}")
    return _BOOLEANS[text]


def create_view(
    image: ClusterImage, new: NewView, *, partitions: int = DEFAULT, replicas: int = DEFAULT
) -> list[Change]:
    """The source is written again unchanged, so that nobody deletes it without having seen the view."""
    check_new_name(image, new.name)
    source = _source(image, new, partitions)
    if replicas not in (DEFAULT, source.replication_factor):
        problem = f"a view has the replicas of its source, which are {source.replication_factor}"
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, problem)
    return [ViewPut(view=_view_image(new, source)), TopicPut(record=source.record)]


def materialize_view(
    image: ClusterImage,
    broker: BrokerConfig,
    new: NewView,
    *,
    partitions: int = DEFAULT,
    replicas: int = DEFAULT,
) -> list[Change]:
    """Create a topic with as many partitions as the source, and the view that fills it, in one change."""
    check_new_name(image, new.name)
    source = _source(image, new, partitions)
    if source.closed_from < len(source.partitions):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"partitions of {source.name!r} are being folded: materialize it when they are gone",
        )
    topic = NewTopic(
        name=new.name,
        topic_id=new.topic_id,
        num_partitions=len(source.partitions),
        replication_factor=replicas,
        configs=new.configs,
    )
    made = create_topic(image, broker, topic)
    return [ViewPut(view=_view_image(new, source)), TopicPut(record=source.record), *made]


def _source(image: ClusterImage, new: NewView, partitions: int) -> TopicImage:
    """The source of a new view. Raises KafkaError."""
    if new.source in image.views or new.source in image.fills:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"{new.source!r} is a view itself: make one of its source instead"
        )
    source = image.topics.get(new.source)
    if source is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {new.source!r} to show")
    if new.source in INTERNAL_TOPICS:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"{new.source!r} is the brokers' own: it has no views"
        )
    if partitions not in (DEFAULT, len(source.partitions)):
        problem = f"a view has the partitions of its source, which are {len(source.partitions)}"
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, problem)
    return source


def _view_image(new: NewView, source: TopicImage) -> ViewImage:
    return ViewImage(
        name=new.name,
        view_id=new.view_id,
        source_id=source.topic_id,
        where=new.where,
        select=new.select,
        keep_tombstones=new.keep_tombstones,
        materialized=new.materialize,
        format=FORMAT_MATERIALIZED if new.materialize else FORMAT,
    )


def delete_view(view: ViewImage) -> list[Change]:
    return [ViewDeleted(name=view.name)]


def view_settings(image: ClusterImage, view: ViewImage) -> dict[str, str]:
    """The settings that created it, and would create it again."""
    settings = {
        SOURCE: image.topic_names.get(view.source_id, ""),
        WHERE: view.where,
        SELECT: view.select,
        KEEP_TOMBSTONES: str(view.keep_tombstones).lower(),
        MATERIALIZE: "true" if view.materialized else None,
    }
    return {key: value for key, value in settings.items() if value is not None}


def _bad_config(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, message)


def readable_topics(image: ClusterImage) -> Iterator[TopicImage]:
    """Every topic, and every view as a topic."""
    yield from image.topics.values()
    for view in image.views.values():
        shown = _as_topic(image, view)
        if shown is not None:
            yield shown


def readable_topic(image: ClusterImage, name: str) -> TopicImage | None:
    topic = image.topics.get(name)
    if topic is None and (view := image.views.get(name)) is not None:
        return _as_topic(image, view)
    return topic


def readable_topic_by_id(image: ClusterImage, topic_id: bytes) -> TopicImage | None:
    topic, name = image.topic_by_id(topic_id), image.view_names.get(topic_id)
    if topic is None and name is not None and name in image.views:
        return _as_topic(image, image.views[name])
    return topic


def named_topic(image: ClusterImage, topic: str | bytes) -> TopicImage | None:
    """The topic or view with this name or id."""
    return readable_topic_by_id(image, topic) if isinstance(topic, bytes) else readable_topic(image, topic)


def source_of(image: ClusterImage, name: str) -> str:
    """The topic whose messages are read under this name: the source of a view; for any other name itself."""
    view = None if name in image.topics else image.views.get(name)
    return name if view is None else image.topic_names.get(view.source_id, name)


def view_named(image: ClusterImage, topic: str | bytes) -> ViewImage | None:
    """The view of this name or id, if there is one. By id, also the view that fills a topic."""
    if isinstance(topic, bytes):
        name = image.view_names.get(topic)
        return None if name is None else image.views.get(name) or image.fills[name]
    return None if topic in image.topics else image.views.get(topic)


def _as_topic(image: ClusterImage, view: ViewImage) -> TopicImage | None:
    source = image.topic_by_id(view.source_id)
    return None if source is None else replace(source, name=view.name, topic_id=view.view_id)
