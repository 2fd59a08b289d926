"""The settings of the brokers in a story."""

from __future__ import annotations

from forebay.sim.actors.consumers.members import SESSION_MS
from forebay.sim.world.store import CLUSTER, STORE_HOST
from forebay.sim.world.virtual_time import World

VERDICTS = "forebay.failover.verdicts.per.minute"
_UNPACKED_BYTES = "16384"
"""No more than the batches of the producers that compress: code that uses another limit is caught."""


def common_settings(world: World, brokers: int) -> dict[str, str]:
    """Settings that differ from story to story: small segments and short limits make more happen."""
    chance = world.chance("settings")
    return {
        "forebay.cluster": f"etcd://{STORE_HOST}:2379/{CLUSTER}",
        "offsets.topic.num.partitions": "2",
        "transaction.state.log.num.partitions": "2",
        "log.segment.bytes": chance.choice(("4096", "65536", "1048576")),
        "log.flush.interval.ms": chance.choice(("1000", "10000")),
        "min.insync.replicas": chance.choice(("1", "2")) if brokers > 1 else "1",
        "replica.lag.time.max.ms": chance.choice(("1500", "3000", "10000")),
        "replica.fetch.wait.max.ms": chance.choice(("300", "500")),
        "log.retention.check.interval.ms": "2000",
        # Clocks are wrong by less. Partitions disappear only where the model knows what they held.
        "forebay.fold.grace.ms": "86400000",
        "producer.id.expiration.check.interval.ms": "1000",
        "group.consumer.session.timeout.ms": str(SESSION_MS),
        "group.consumer.heartbeat.interval.ms": "700",
        "share.coordinator.state.topic.num.partitions": "2",
        "share.coordinator.snapshot.update.records.per.snapshot": chance.choice(("5", "500")),
        "share.coordinator.state.topic.prune.interval.ms": chance.choice(("1000", "300000")),
        "leader.imbalance.check.interval.seconds": chance.choice(("5", "300")),
        VERDICTS: chance.choice(("0", "1", "3", "3")),
        "forebay.decompress.max.bytes": _UNPACKED_BYTES,
    }


def own_settings(world: World, number: int) -> dict[str, str]:
    """Settings in which the brokers of a story differ: some copy what others have long compacted, and some
    join before they have opened their logs."""
    chance, opening = world.chance(f"settings/{number}"), world.chance(f"opening/{number}")
    return {
        "log.cleaner.backoff.ms": chance.choice(("300", "300", "15000")),
        "forebay.open.before.ready.max": opening.choice(("0", "1000")),
    }
