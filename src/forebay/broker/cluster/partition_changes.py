"""Many decisions about single partitions, written together: each has an outcome of its own.

They go to the store in as few transactions as fit. Where another writer was faster, the decisions that were
lost are made again, one by one, on the image with its change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from forebay.coordination.metadata import Metadata
from forebay.core.cluster.image import ClusterImage
from forebay.core.cluster.image_changes import PartitionPut
from forebay.core.topic_partition import TopicPartition
from forebay.errors import KafkaError

Decide = Callable[[ClusterImage], list[PartitionPut]]
"""For one partition: its change, or none; raises KafkaError when it is refused."""


async def carry_out_each(
    metadata: Metadata, decisions: Mapping[TopicPartition, Decide]
) -> dict[TopicPartition, KafkaError | None]:
    """The error of each decision, or None for those that are carried out and visible here."""
    errors: dict[TopicPartition, KafkaError | None] = dict.fromkeys(decisions)
    planned: dict[TopicPartition, PartitionPut] = {}
    for place, decide in decisions.items():
        try:
            planned.update((place, change) for change in decide(metadata.image))
        except KafkaError as error:
            errors[place] = error
    try:
        failed = await metadata.change_all(list(planned.values()))
    except KafkaError as error:
        return errors | dict.fromkeys(planned, error)
    overtaken = {id(change) for change in failed}
    for place, change in planned.items():
        if id(change) in overtaken:
            errors[place] = await _again(metadata, decisions[place])
    return errors


async def _again(metadata: Metadata, decide: Decide) -> KafkaError | None:
    try:
        await metadata.change(decide)
    except KafkaError as error:
        return error
    return None
