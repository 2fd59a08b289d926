"""The share partitions that this broker leads, by group; created when a member first fetches from one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial

from forebay.broker.partition.table import PartitionTable
from forebay.broker.shares.live_share import LiveShare, ShareHost
from forebay.config import ShareGroupSettings
from forebay.core.cluster.image import ClusterImage
from forebay.core.shares.coordinator.persisted_state import ShareKey
from forebay.core.shares.sessions import SessionKey, SessionPartition, ShareSessions


class ShareTable:
    def __init__(
        self,
        host: ShareHost,
        partitions: PartitionTable,
        sessions: ShareSessions,
        *,
        settings_of: Callable[[str], ShareGroupSettings],
    ) -> None:
        self._host = host
        self._partitions = partitions
        self._sessions = sessions
        self._settings_of = settings_of
        self._groups: dict[str, dict[SessionPartition, LiveShare]] = {}
        self._is_closed = False

    def __iter__(self) -> Iterator[LiveShare]:
        return iter([share for shares in self._groups.values() for share in shares.values()])

    def get(self, group_id: str, at: SessionPartition) -> LiveShare:
        """A share partition, perhaps not loaded yet.

        Raises KafkaError if this broker does not lead the partition, or is not sure of it.
        """
        partition = self._partitions.get_with_lease(self._partitions.name_of(at.topic_id), at.partition)
        if self._is_closed:
            raise partition.not_leader()
        share = self._groups.get(group_id, {}).get(at)
        if share is not None and not share.is_current:
            share.drop()
            share = None
        if share is None:
            key = ShareKey(group_id, at.topic_id, at.partition)
            share = LiveShare(
                key,
                partition,
                self._settings_of(group_id),
                self._host,
                dropped=self._forget,
                is_used=partial(self._sessions.has_group, group_id),
            )
            self._groups.setdefault(group_id, {})[at] = share
            share.load()
        share.confirm()
        return share

    def doubt(self, group_id: str, partitions: Iterable[SessionPartition]) -> None:
        """Note that a member begins to fetch from these. Their state may be that of an earlier group."""
        shares = self._groups.get(group_id, {})
        for at in partitions:
            if at in shares:
                shares[at].confirmation.doubt()

    def session_ended(self, key: SessionKey) -> None:
        """Release the records of a member. Once no member is left, idle share partitions are dropped."""
        for share in list(self._groups.get(key.group_id, {}).values()):
            if share.machine is not None:
                if share.machine.holds(key.member_id):
                    share.machine.release(key.member_id, self._host.time.uptime_ms())
                    share.changed()
                share.drop_if_unused()

    def holds_records(self, key: SessionKey) -> bool:
        """True while a member has locks on records here."""
        shares = self._groups.get(key.group_id, {}).values()
        return any(share.machine is not None and share.machine.holds(key.member_id) for share in shares)

    def follow(self, before: ClusterImage, after: ClusterImage) -> None:
        """Drop share partitions that this broker no longer leads; apply changed settings."""
        self._host.loading.reads.forget_other_terms()
        for share in self:
            if not share.is_current:
                share.drop()
            elif after.group_configs is not before.group_configs:
                share.configure(self._settings_of(share.key.group_id))

    def close(self) -> None:
        """Drop all: the broker stops, and waits for nothing that a request would begin from now on."""
        self._is_closed = True
        for share in self:
            share.drop()

    def _forget(self, share: LiveShare) -> None:
        shares = self._groups[share.key.group_id]
        del shares[SessionPartition(share.key.topic_id, share.key.partition)]
        if not shares:
            del self._groups[share.key.group_id]
