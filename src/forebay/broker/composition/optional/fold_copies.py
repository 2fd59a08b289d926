"""Parts by which folded partitions hand on records of compacted topics, and sequences of producers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from forebay.broker.record_moves.copy_appends import CopyAppends
from forebay.broker.record_moves.copy_source import CopyHost
from forebay.broker.record_moves.fold_copies import FoldCopies
from forebay.broker.upkeep.sequence_handover import SequenceHandover

if TYPE_CHECKING:
    from forebay.broker.cluster.peers.peers import Peers
    from forebay.broker.composition.foundations import Foundations
    from forebay.broker.composition.local_partitions import LocalPartitions
    from forebay.broker.composition.optional.shares import Shares


def copy_appends(base: Foundations, local: LocalPartitions, peers: Peers) -> CopyAppends:
    return CopyAppends(base.metadata, local.table, peers, local.write_cycle, base.loop, node_id=base.node_id)


def fold_copies(
    base: Foundations, local: LocalPartitions, appends: CopyAppends, shares: Shares
) -> FoldCopies:
    host = CopyHost(
        mover=replace(shares.mover, appends=appends),
        settings=base.settings,
        metrics=base.metrics,
        time=base.time,
        loop=base.loop,
        node_id=base.node_id,
    )
    return FoldCopies(local.table, host)


def sequence_handover(base: Foundations, local: LocalPartitions, peers: Peers) -> SequenceHandover:
    return SequenceHandover(
        base.metadata,
        local.table,
        peers,
        local.write_cycle,
        base.loop,
        now_ms=base.time.now_ms,
        node_id=base.node_id,
    )
