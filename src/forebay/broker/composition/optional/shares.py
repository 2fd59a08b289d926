"""Share groups at the leaders of their partitions: sessions, share partitions, dead letters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.broker.record_moves.appends import MoveAppends
from forebay.broker.record_moves.live_mover import MoverHost
from forebay.broker.shares.dead_letter_watch import DeadLetterWatch
from forebay.broker.shares.dead_letters.letters_to_move import DeadLetterHost
from forebay.broker.shares.dead_letters.target_topic import DeadLetterTargets
from forebay.broker.shares.live_share import ShareHost
from forebay.broker.shares.persistence.loading import ShareLoading
from forebay.broker.shares.persistence.missing_states import MissingStates
from forebay.broker.shares.persistence.start_offsets import StartOffsets
from forebay.broker.shares.persistence.state_reads import StateReads
from forebay.broker.shares.persistence.state_store import ShareStateStore
from forebay.broker.shares.persistence.state_writes import StateWrites
from forebay.broker.shares.requests.service import ShareService
from forebay.broker.shares.table import ShareTable
from forebay.core.shares.sessions import ShareSessions

if TYPE_CHECKING:
    from collections.abc import Callable

    from forebay.broker.cluster.peers.peers import Peers
    from forebay.broker.cluster.topic_changes import TopicChanges
    from forebay.broker.composition.coordinators import Coordinators
    from forebay.broker.composition.foundations import Foundations
    from forebay.broker.composition.local_partitions import LocalPartitions
    from forebay.broker.fetch.cold_reads import ColdReads
    from forebay.broker.folds.takers import BatchTakers
    from forebay.broker.produce.record_checks import Examiner
    from forebay.broker.tiers.remote_offsets import RemoteOffsets
    from forebay.broker.tiers.remote_reads import RemoteReads
    from forebay.config import ShareGroupSettings


class Shares:
    def __init__(
        self,
        base: Foundations,
        local: LocalPartitions,
        coordinators: Coordinators,
        *,
        peers: Peers,
        takers: BatchTakers,
        topic_changes: TopicChanges,
        cold_reads: ColdReads,
        examiner: Examiner,
        remote_reads: Callable[[], RemoteReads | None],
        remote_offsets: Callable[[], RemoteOffsets | None],
    ) -> None:
        def settings_of(group_id: str) -> ShareGroupSettings:
            return coordinators.groups.settings_of(group_id).share

        limits = base.settings.current.groups.share
        sessions = ShareSessions(limits.max_share_sessions, limits.max_session_partitions)
        appends = MoveAppends(
            base.metadata,
            peers,
            takers,
            local.write_cycle,
            examiner,
            base.time,
            base.loop,
            node_id=base.node_id,
        )
        mover = self.mover = MoverHost(
            journal=coordinators.move_journal,
            appends=appends,
            producer_ids=coordinators.producer_ids,
            metadata=base.metadata,
            workers=base.workers,
            background=base.background,
        )
        missing = MissingStates(
            coordinators.groups, peers, base.metadata, base.background, base.time, node_id=base.node_id
        )
        store = ShareStateStore(coordinators.share_states)
        host = ShareHost(
            store=store,
            loading=ShareLoading(
                StateReads(store, missing.report),
                StartOffsets(local.offsets_by_time, remote_offsets, local.delays, base.time).resolve,
            ),
            delays=local.delays,
            writes=StateWrites(coordinators.share_states, base.background, base.loop),
            dead_letters=DeadLetterHost(
                mover=mover,
                targets=DeadLetterTargets(base.metadata, base.settings, topic_changes),
                remote_reads=remote_reads,
                metrics=base.metrics,
                time=base.time,
            ),
            cold_reads=cold_reads,
            remote_reads=remote_reads,
            background=base.background,
            time=base.time,
            loop=base.loop,
        )
        table = ShareTable(host, local.table, sessions, settings_of=settings_of)
        self.service = ShareService(
            settings=base.settings,
            settings_of=settings_of,
            metadata=base.metadata,
            sessions=sessions,
            shares=table,
            cold_reads=cold_reads,
            authorization=base.authorization,
            quotas=base.quotas,
            lease=base.lease,
            metrics=base.metrics,
            time=base.time,
            loop=base.loop,
        )
        self.dead_letter_watch = DeadLetterWatch(
            coordinators.share_states, table, peers, base.metadata, node_id=base.node_id
        )
