"""The state of a partition: its leader, its in-sync set, its replicas, and if that can be trusted."""

from __future__ import annotations

from dataclasses import replace

from forebay.core.cluster.restore_image import EPOCHS_SKIPPED, Restore
from forebay.lazy import dataclass

NO_LEADER = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionState:
    index: int
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    """Empty only when no member can be trusted to have everything. Then an eligible replica may lead; if
    there is none, only an unclean election gives a leader."""
    replicas: tuple[int, ...]
    """During a reassignment, both the replicas that are added and those that are removed."""
    partition_epoch: int = 0
    """The mod revision of the partition's key. A change of the state keeps it, and the store compares it: so
    a change based on an old state never overwrites a newer one."""
    adding: tuple[int, ...] = ()
    """Replicas that a reassignment adds; it ends when they are in sync."""
    removing: tuple[int, ...] = ()
    """Replicas that are removed when the reassignment ends."""
    eligible: tuple[int, ...] = ()
    """Replicas that left the in-sync set when it fell below min.insync.replicas: they have all that is
    committed, and may lead when no in-sync member can (see `isr_changes.py`)."""
    synced: bool = False
    """The only in-sync replica has all committed messages on its disk: a power failure loses none of them."""
    restored: int = 0
    """The restore of the store (`restore_image.py`) after which this state was decided."""
    doubted: bool = False
    """A replica has seen later leader epochs than the store knows of."""
    unsettled: bool = False
    """Not stored: the store was restored since this was decided. Leader and in-sync set are left out, and a
    leader is elected by comparing the replicas' logs."""
    unreadable: bool = False
    """The stored state cannot be read (`unreadable.py`). Nobody leads, and no change is ever planned."""

    @property
    def original(self) -> tuple[int, ...]:
        """The replicas as they were before a reassignment, if there is one."""
        if not self.adding:
            return self.replicas
        return tuple(replica for replica in self.replicas if replica not in self.adding)

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas once a reassignment, if there is one, has ended."""
        if not self.removing:
            return self.replicas
        return tuple(replica for replica in self.replicas if replica not in self.removing)

    @property
    def decided(self) -> tuple[object, ...]:
        """All but index and partition epoch: the same for thousands of partitions."""
        return (
            self.leader,
            self.leader_epoch,
            self.isr,
            self.replicas,
            self.adding,
            self.removing,
            self.eligible,
            self.synced,
            self.restored,
            self.doubted,
            self.unsettled,
            self.unreadable,
        )

    @staticmethod
    def initial(
        index: int, replicas: tuple[int, ...], restored: int = 0, first_epoch: int = 0
    ) -> PartitionState:
        """The state of a new partition. Its leader epoch is above those of an earlier partition with this
        index, which a restored store has forgotten: brokers that were absent since may still have its log."""
        return PartitionState(
            index=index,
            leader=replicas[0],
            leader_epoch=max(restored * EPOCHS_SKIPPED, first_epoch),
            isr=replicas,
            replicas=replicas,
            restored=restored,
        )

    def at(self, index: int, partition_epoch: int) -> PartitionState:
        """The same state of another partition. Like `replace`, but quick: a store may hold a million."""
        return PartitionState(
            index=index,
            leader=self.leader,
            leader_epoch=self.leader_epoch,
            isr=self.isr,
            replicas=self.replicas,
            partition_epoch=partition_epoch,
            adding=self.adding,
            removing=self.removing,
            eligible=self.eligible,
            synced=self.synced,
            restored=self.restored,
            doubted=self.doubted,
            unsettled=self.unsettled,
            unreadable=self.unreadable,
        )

    def as_of(self, restore: Restore) -> PartitionState:
        """The same state; without what cannot be trusted, if it was decided before the store was restored."""
        if self.unreadable or self.unsettled:
            return self
        if restore.is_readable and self.restored >= restore.generation and not self.doubted:
            return self
        return replace(self, leader=NO_LEADER, isr=(), eligible=(), synced=False, unsettled=True)

    @staticmethod
    def in_doubt(
        index: int, leader_epoch: int = 0, replicas: tuple[int, ...] = (NO_LEADER,)
    ) -> PartitionState:
        """A placeholder for a state that cannot be read. No key has its partition epoch, so the store refuses
        every state that is made from it."""
        return PartitionState(
            index=index,
            leader=NO_LEADER,
            leader_epoch=leader_epoch,
            isr=(),
            replicas=replicas,
            partition_epoch=-1,
            unreadable=True,
        )
