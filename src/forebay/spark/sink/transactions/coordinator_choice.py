"""Puts the transactions of a batch on one coordinator, which can then end them in one step.

The hash of a transactional id names a partition of __transaction_state, and the leader of that partition
coordinates the transaction. The driver's id is given. The ids of the tasks get a suffix of a few characters
that moves their hash to the same partition. Only brokers that can end transactions together are asked for it.
"""

from __future__ import annotations

from itertools import product
from string import ascii_lowercase, digits
from typing import NamedTuple

from forebay.errors import ErrorCode, ForebayError, KafkaError
from forebay.spark.wire.connections import TRANSACTION, Cluster
from forebay.wire.coordinator_partition import partition_for
from forebay.wire.messages.end_txn import END_TOGETHER

TRANSACTIONS_TOPIC = "__transaction_state"
SALT_CHARACTERS_MAX = 3
"""More than thirty thousand hashes in a row: enough for any number of partitions that brokers have."""


class StatePartition(NamedTuple):
    """A partition of __transaction_state, and how many there are."""

    partition: int
    partitions: int

    def holds(self, transactional_id: str) -> bool:
        return partition_for(transactional_id, self.partitions) == self.partition

    def salt_for(self, stem: str) -> str:
        """The suffix that moves a transactional id with this stem to this partition."""
        for length in range(1, SALT_CHARACTERS_MAX + 1):
            for characters in product(digits + ascii_lowercase, repeat=length):
                salt = "".join(characters)
                if self.holds(stem + salt):
                    return salt
        raise ForebayError(f"{TRANSACTIONS_TOPIC} has too many partitions: {self.partitions}")


def state_partition_of(cluster: Cluster, transactional_id: str) -> StatePartition | None:
    """The partition of a transactional id; None if its coordinator can only end transactions one by one."""
    if not cluster.coordinator(transactional_id, TRANSACTION).has_feature(END_TOGETHER):
        return None
    partitions = cluster.partition_count(TRANSACTIONS_TOPIC)
    if not partitions:  # just created, and not yet in the metadata of this broker
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{TRANSACTIONS_TOPIC} is not there yet")
    return StatePartition(partition_for(transactional_id, partitions), partitions)
