"""The manifest of a partition, for requests that cannot be answered without it."""

from __future__ import annotations

from forebay.broker.partition.partition import Partition
from forebay.errors import ErrorCode, KafkaError
from forebay.wire.tiers.manifest import Manifest


def known_manifest(partition: Partition) -> Manifest | None:
    """The manifest of a tiered partition. Raises KafkaError if it was not read yet: clients ask again."""
    if partition.remote is None:
        return None
    if not partition.remote.known:
        raise KafkaError(
            ErrorCode.OFFSET_NOT_AVAILABLE,
            f"it is not known yet which messages of {partition} are in the object store; ask again",
        )
    return partition.remote.manifest
