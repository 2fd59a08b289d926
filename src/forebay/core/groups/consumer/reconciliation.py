"""How a member moves from its assignment to its target, without two members ever having one partition.

    Stable       --(target changed, something to give up)-->   Unrevoked
    Stable       --(target changed, nothing to give up)---->   Stable or Unreleased, in the target's epoch
    Unrevoked    --(it says that it gave everything up)---->   Unrevoked again, Stable or Unreleased
    Unreleased   --(another member gave one up)------------>   Unreleased or Stable

A member gives up first, and stays in its epoch until it has: so the epoch says that everything it does not
have any more is free for others. It is given what is free, and waits for the rest, which comes with later
heartbeats. What a member owns is what it says it owns; a heartbeat that does not say proves nothing.
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
        unrevoked = replace(member, state=MemberState.UNREVOKED, assigned=kept, revoking=revoking)
        return _in_epoch(unrevoked, epoch)
    free = available(member, target, owners)
    return replace(
        _in_epoch(member, target_epoch),
        state=MemberState.STABLE if kept | free == target else MemberState.UNRELEASED,
        assigned=kept | free,
        revoking=NOTHING,
    )


def available(member: ConsumerMember, target: Partitions, owners: Mapping[TopicPartition, str]) -> Partitions:
    """What the member is meant to have, has not yet, and could be given now."""
    return frozenset(
        partition
        for partition in target - member.assigned
        if owners.get(partition, member.member_id) == member.member_id
    )


def _in_epoch(member: ConsumerMember, epoch: int) -> ConsumerMember:
    """It may come with the epoch before once more, if the answer that told it the new one was lost."""
    if epoch == member.epoch:
        return member
    return replace(member, epoch=epoch, previous_epoch=member.epoch)


def _owns_any(partitions: Partitions, owned: Partitions | None) -> bool:
    return owned is None or not partitions.isdisjoint(owned)
