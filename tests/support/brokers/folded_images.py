"""Images of a cluster with one topic, `t`, whose partitions are folded and unfolded."""

from __future__ import annotations

from forebay.config import BrokerConfig
from forebay.core.cluster.image import ClusterImage
from forebay.core.cluster.image_changes import BrokerPut, ConfigOwner, ConfigPut, TopicPut
from forebay.core.cluster.images.topic_image import TopicImage, TopicRecord
from forebay.core.cluster.registration import BrokerRegistration
from forebay.core.cluster.topics.fewer_partitions import FoldRequest, remove_closed, set_partitions
from forebay.core.cluster.topics.more_partitions import record_growth

TOPIC_ID = bytes(range(16))
NOW_MS = 1_800_000_000_000
ENDS = {index: 10_000 + index for index in range(1_000)}
"""Where partitions end that may go."""


def with_topic(partitions: int, name: str = "t", **overrides: str) -> ClusterImage:
    record = TopicRecord(name=name, topic_id=TOPIC_ID, assignment=((1,),) * partitions)
    image = ClusterImage(cluster_id="c").apply([TopicPut(record=record, revision=1)])
    image = image.apply([BrokerPut(registration=BrokerRegistration(id=1, host="a", port=1))])
    if overrides:
        settings = {key.replace("_", "."): value for key, value in overrides.items()}
        image = image.apply([ConfigPut(owner=ConfigOwner.TOPIC, name=name, overrides=settings)])
    return image


def folded(
    image: ClusterImage,
    broker: BrokerConfig,
    count: int,
    *,
    allow_key_moves: bool = False,
    drop: int | None = None,
) -> ClusterImage:
    """With another number of partitions: fewer, or more."""
    request = FoldRequest(count=count, now_ms=NOW_MS, allow_key_moves=allow_key_moves, drop_after_ms=drop)
    return image.apply(set_partitions(image, broker, "t", request))


grown = folded


def topic_of(image: ClusterImage) -> TopicImage:
    return image.topics["t"]


def emptied(image: ClusterImage) -> ClusterImage:
    """Every closed partition has been taken away."""
    while topic_of(image).closed_from < len(topic_of(image).partitions):
        image = image.apply(remove_closed(image, TOPIC_ID, ENDS, 1))
    return image


def settled(image: ClusterImage) -> ClusterImage:
    """All partitions have gathered what they need, and no transaction is left."""
    return image.apply(record_growth(image, topic_of(image), range(10_000), range(10_000)))
