"""Topics of a real cluster in tests: who leads, who is in sync, and whether all replicas are the same."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from forebay.errors import ErrorCode
from forebay.testing import Cluster
from support.clients.kafka_clients import DEADLINE_SECONDS
from support.clients.wire_client import WireClient, append, batch

_ASK_SECONDS = 2.0
_PASSING = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
)


def until(condition: Callable[[], bool], what: str, *, seconds: float = DEADLINE_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what}: it did not happen"
        time.sleep(0.05)


class Topic:
    """A topic with a replica on every broker; the first partition is led by the broker named first."""

    def __init__(self, cluster: Cluster, name: str, partitions: int = 1, **config: str) -> None:
        self.cluster, self.name, self.partitions = cluster, name, partitions
        nodes = cluster.node_ids
        turns = [number % len(nodes) for number in range(partitions)]
        new = NewTopic(
            name,
            num_partitions=partitions,
            replica_assignment=[nodes[turn:] + nodes[:turn] for turn in turns],
            config={key.replace("_", "."): value for key, value in config.items()},
        )
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
        admin.create_topics([new])[name].result(DEADLINE_SECONDS)
        self.wait_until_in_sync()

    def states(self) -> dict[int, Any]:
        """Leader, replicas and in-sync replicas of each partition, as the first that answers sees it."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while time.monotonic() < deadline:
            for node in [node for node in self.cluster.running if node not in self.cluster.paused]:
                admin = AdminClient({"bootstrap.servers": self.cluster.address(node), "log_level": 0})
                try:
                    found = admin.list_topics(self.name, timeout=_ASK_SECONDS).topics[self.name]
                    return dict(found.partitions)
                except KafkaException:
                    continue  # it has only just been killed
        raise AssertionError("no broker answers")

    def append(self, value: bytes) -> None:
        """With acks=all, as a client does: again, until a leader with enough replicas has heard of itself."""
        code = None

        def is_appended() -> bool:
            nonlocal code
            with WireClient(self.cluster.address(self.leader())) as client:
                code = append(client, self.name, batch(value), acks=-1).error_code
            return code not in _PASSING

        until(is_appended, f"a message in {self.name}")
        assert code == ErrorCode.NONE

    def leader(self, partition: int = 0) -> int:
        """As soon as there is one that runs."""
        running = self.cluster.running
        until(lambda: self.states()[partition].leader in running, f"a leader of {self.name}-{partition}")
        leader: int = self.states()[partition].leader
        return leader

    def followers(self, partition: int = 0) -> list[int]:
        leader = self.leader(partition)
        return [node for node in self.cluster.node_ids if node != leader]

    def wait_until_led_by_another(self, than: int, partition: int = 0) -> None:
        until(
            lambda: self.states()[partition].leader not in (than, -1),
            f"another leader of {self.name}-{partition} than {than}",
        )

    def wait_until_in_sync(self) -> None:
        nodes = set(self.cluster.node_ids)

        def in_sync() -> bool:
            states = self.states()
            return len(states) == self.partitions and all(set(s.isrs) == nodes for s in states.values())

        until(in_sync, f"all replicas of {self.name} in sync")

    # -- on the disks ----------------------------------------------------------------------------------

    def wait_until_same_on_all(self) -> None:
        """All replicas of all partitions hold the same batches, byte for byte."""

        def same() -> bool:
            return all(
                len({self.stored(node, number) for node in self.cluster.node_ids}) == 1
                for number in range(self.partitions)
            )

        until(same, f"the same logs of {self.name} on all brokers")

    def stored(self, node: int, partition: int = 0) -> bytes:
        """The log of this replica. Where one segment ends and the next begins is each broker's own affair."""
        directory = self.cluster.broker_data_dir(node) / f"{self.name}-{partition}"
        return b"".join(segment.read_bytes() for segment in sorted(directory.glob("*.log")))
