"""The views of a cluster: what clients may read by name, and what an administrator asks of views.

To clients a view is a topic. It has its own name and id, and everything else of its source: partitions,
leaders, epochs, offsets. A view whose source is gone is not readable.

It is created as a topic is, by CreateTopics, with settings that no topic has, so that every client and tool
can do it. It is deleted by DeleteTopics. DescribeConfigs shows the same settings. It cannot be altered.
Decisions are made on an image: the changes to write, or the error to answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from forebay.core.cluster.image import Change, ClusterImage, TopicImage, TopicPut
from forebay.core.cluster.topics import DEFAULT, INTERNAL_TOPICS, check_new_name
from forebay.core.cluster.view_image import ViewDeleted, ViewImage, ViewPut
from forebay.errors import ErrorCode, KafkaError

SOURCE = "forebay.view.source"
WHERE = "forebay.view.where"
SELECT = "forebay.view.select"
KEEP_TOMBSTONES = "forebay.view.keep.tombstones"

_PREFIX = "forebay.view."
_BOOLEANS = {"true": True, "false": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class NewView:
    name: str
    view_id: bytes
    source: str
    where: str | None = None
    select: str | None = None
    keep_tombstones: bool = False


def names_view_settings(configs: Iterable[str]) -> bool:
    """Whether a request for a new topic means a view."""
    return any(key.startswith(_PREFIX) for key in configs)


def names_only_view_settings(keys: Iterable[str]) -> bool:
    return all(key.startswith(_PREFIX) for key in keys)


def new_view(name: str, view_id: bytes, configs: Mapping[str, str | None]) -> NewView:
    """What a request for a new topic with these settings means. Raises KafkaError."""
    unknown = sorted(configs.keys() - {SOURCE, WHERE, SELECT, KEEP_TOMBSTONES})
    if unknown:
        raise _bad_config(f"a view has no setting {', '.join(unknown)}: it is as its source is set")
    source = configs.get(SOURCE)
    if not source:
        raise _bad_config(f"a view needs {SOURCE}, the topic that it shows")
    kept = (configs.get(KEEP_TOMBSTONES) or "false").lower()
    if kept not in _BOOLEANS:
        raise _bad_config(f"{KEEP_TOMBSTONES} is true or false, not {kept!r}")
    return NewView(
        name=name,
        view_id=view_id,
        source=source,
        where=configs.get(WHERE) or None,
        select=configs.get(SELECT) or None,
        keep_tombstones=_BOOLEANS[kept],
    )


def create_view(
    image: ClusterImage, new: NewView, *, partitions: int = DEFAULT, replicas: int = DEFAULT
) -> list[Change]:
    """Its source is written again as it is, so that nobody deletes it without having seen the view."""
    check_new_name(image, new.name)
    if new.source in image.views:
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
    if replicas not in (DEFAULT, source.replication_factor):
        problem = f"a view has the replicas of its source, which are {source.replication_factor}"
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, problem)
    view = ViewImage(
        name=new.name,
        view_id=new.view_id,
        source_id=source.topic_id,
        where=new.where,
        select=new.select,
        keep_tombstones=new.keep_tombstones,
    )
    return [ViewPut(view=view), TopicPut(record=source.record)]


def delete_view(view: ViewImage) -> list[Change]:
    return [ViewDeleted(name=view.name)]


def view_settings(image: ClusterImage, view: ViewImage) -> dict[str, str]:
    """The settings that made it, and would again."""
    settings = {
        SOURCE: image.topic_names.get(view.source_id, ""),
        WHERE: view.where,
        SELECT: view.select,
        KEEP_TOMBSTONES: str(view.keep_tombstones).lower(),
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
    name = image.topic_names.get(topic_id) or image.view_names.get(topic_id)
    return None if name is None else readable_topic(image, name)


def named_topic(image: ClusterImage, topic: str | bytes) -> TopicImage | None:
    """By name or id."""
    return readable_topic_by_id(image, topic) if isinstance(topic, bytes) else readable_topic(image, topic)


def source_of(image: ClusterImage, name: str) -> str:
    """The topic whose messages are read under this name: the source of a view, any other name itself."""
    view = None if name in image.topics else image.views.get(name)
    return name if view is None else image.topic_names.get(view.source_id, name)


def view_named(image: ClusterImage, topic: str | bytes) -> ViewImage | None:
    """The view of this name or id, if there is one."""
    if isinstance(topic, bytes):
        name = image.view_names.get(topic)
        return None if name is None else image.views[name]
    return None if topic in image.topics else image.views.get(topic)


def _as_topic(image: ClusterImage, view: ViewImage) -> TopicImage | None:
    source = image.topic_by_id(view.source_id)
    return None if source is None else replace(source, name=view.name, topic_id=view.view_id)
