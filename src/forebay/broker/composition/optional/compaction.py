"""The compaction of logs, made when a topic is compacted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.broker.upkeep.compaction import Compactor

if TYPE_CHECKING:
    from forebay.broker.composition.foundations import Foundations
    from forebay.broker.composition.local_partitions import LocalPartitions


def compactor(base: Foundations, local: LocalPartitions) -> Compactor:
    return Compactor(
        settings=base.settings,
        metadata=base.metadata,
        partitions=local.table,
        data=base.data,
        disk=base.ports.disk,
        checkpoint=local.assignment.checkpoint,
        pool=base.ports.executor(1, "forebay-clean"),
        background=base.background,
        metrics=base.metrics,
        time=base.time,
        loop=base.loop,
    )
