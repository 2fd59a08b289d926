"""Moves a member from its assignment to its target, so that two members never own the same partition.

    Stable       --(target changed, something to give up)-->   Unrevoked
    Stable       --(target changed, nothing to give up)---->   Stable or Unreleased, in the target's epoch
    Unrevoked    --(it says that it gave everything up)---->   Unrevoked again, Stable or Unreleased
    Unreleased   --(another member gave one up)------------>   Unreleased or Stable

A member gives up partitions first, and stays in its epoch until it has. So a new epoch means that everything
it gave up is free for others. It gets the partitions that are free, and the rest with later heartbeats. A
member owns what it says it owns; a heartbeat without that field proves nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from forebay.core.groups.assigned_partitions import NOTHING, Partitions, TopicPartition
from forebay.core.groups.consumer.members import ConsumerMember, MemberState


def reconcile(
    member: ConsumerMember,
    *,
    target: Partitions,
    target_epoch: int,
    owned: Partitions | None,
    owners: Mapping[TopicPartition, str],
) -> ConsumerMember:
    """The member one step further towards its target; the same one if it cannot move."""
    epoch = member.epoch
    if member.state is MemberState.UNREVOKED:
        if _owns_any(member.revoking, owned):
            return member
        epoch += 1
    elif member.is_reconciled_to(target_epoch):
        return member
    kept = member.assigned & target
    revoking = member.assigned - target
    if revoking and _owns_any(revoking, owned):
        return _moved(member, epoch, MemberState.UNREVOKED, kept, revoking)
    assigned = kept | available(member, target, owners)
    state = MemberState.STABLE if assigned == target else MemberState.UNRELEASED
    return _moved(member, target_epoch, state, assigned, NOTHING)


def available(member: ConsumerMember, target: Partitions, owners: Mapping[TopicPartition, str]) -> Partitions:
    """The partitions of the target that the member does not have yet and could be given now."""
    return frozenset(
        partition
        for partition in target - member.assigned
        if owners.get(partition, member.member_id) == member.member_id
    )


def _moved(
    member: ConsumerMember, epoch: int, state: MemberState, assigned: Partitions, revoking: Partitions
) -> ConsumerMember:
    """In a new epoch it may repeat the previous one once, if the response was lost."""
    previous = member.previous_epoch if epoch == member.epoch else member.epoch
    return replace(
        member, epoch=epoch, previous_epoch=previous, state=state, assigned=assigned, revoking=revoking
    )


def _owns_any(partitions: Partitions, owned: Partitions | None) -> bool:
    return owned is None or not partitions.isdisjoint(owned)
