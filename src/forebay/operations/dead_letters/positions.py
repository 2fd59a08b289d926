"""The progress of a dead letter topic's redrive: the committed offsets of a separate group."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from forebay.operations.client import REQUEST_SECONDS, Client, failed
from forebay.operations.dead_letters.progress import Progress, progress_of
from forebay.operations.dead_letters.reading import reader_settings

if TYPE_CHECKING:
    from confluent_kafka import Consumer


def redrive_group(topic: str) -> str:
    """The group of a topic's redrives, and their transactional id: only one moves letters at a time."""
    return f"forebay-redrive-{topic}"


def last_committed(client: Client, topic: str, partitions: Iterable[int]) -> dict[int, Progress]:
    """The last progress, without waiting for a redrive that is under way, or was killed."""
    if not (wanted := sorted(partitions)):
        return {}
    consumer = client.consumer(reader_settings(redrive_group(topic), committed=False))
    try:
        return committed_by(consumer, topic, wanted)
    finally:
        consumer.close()


def committed_by(consumer: Consumer, topic: str, partitions: Iterable[int]) -> dict[int, Progress]:
    """The progress of the consumer's group. A read_committed consumer waits for open transactions."""
    from confluent_kafka import KafkaException, TopicPartition

    asked = [TopicPartition(topic, number) for number in partitions]
    try:
        found = consumer.committed(asked, timeout=REQUEST_SECONDS)
    except KafkaException as error:
        raise failed(error) from None
    for each in found:
        if each.error is not None:
            raise failed(KafkaException(each.error))
    return {each.partition: progress_of(each.offset, each.metadata) for each in found if each.offset >= 0}
