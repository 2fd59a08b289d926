"""Opening a partition: its log, and what is kept beside it. Blocks: any thread that then hands it over."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from forebay.broker.partition import Partition
from forebay.broker.producer_state import load_producers, save_producers
from forebay.broker.topic_policy import append_policy, log_config
from forebay.config import TopicConfig
from forebay.core.image import ClusterImage, PartitionState, TopicImage
from forebay.errors import StorageError
from forebay.storage.checkpoint import TopicPartition
from forebay.storage.epochs import LeaderEpochs

if TYPE_CHECKING:
    from forebay.broker.broker import Broker

log = logging.getLogger(__name__)


def topic_config(broker: Broker, image: ClusterImage, topic: str) -> TopicConfig:
    return TopicConfig.resolve(broker.config, image.topic_config(topic).overrides)


def open_partition(
    broker: Broker, image: ClusterImage, topic: TopicImage, state: PartitionState
) -> Partition | StorageError:
    """The partition, or why it cannot be opened: then its log is checked whenever it is opened next.

    Even if it is a mistake of ours: others are opened beside it, and somebody waits for all of them.
    """
    key = (topic.name, state.index)
    try:
        return _open(broker, key, topic.topic_id, topic_config(broker, image, topic.name))
    except Exception as error:
        log.exception("a partition cannot be opened", extra={"partition": f"{topic.name}-{state.index}"})
        broker.data.distrust(*key)
        return StorageError(f"partition {state.index} of {topic.name!r}: {error}")


def _open(broker: Broker, key: TopicPartition, topic_id: bytes, config: TopicConfig) -> Partition:
    log_ = broker.data.open_log(*key, log_config(config), topic_id=topic_id, clock=broker.clock)
    try:
        epochs = LeaderEpochs(broker.disk, log_.directory)
        producers = load_producers(log_, epochs)
    except BaseException:
        log_.discard()
        raise
    partition = Partition(
        topic=key[0],
        topic_id=topic_id,
        index=key[1],
        log=log_,
        epochs=epochs,
        producers=producers,
        config=config,
        policy=append_policy(config, broker.config.storage.decompress_max_bytes),
        high_watermark=broker.data.high_watermark(*key),
        syncs_alone=broker.config.storage.flush_on_ack,
    )
    log_.on_roll = lambda _: save_producers(log_, partition.producers)

    def count_unreadable() -> None:
        broker.metrics.unreadable_batches += 1

    log_.unreadable.on_found = count_unreadable
    return partition
