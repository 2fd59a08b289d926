"""Moving partitions between brokers, decided on an image.

A move is a state of the partition itself. The new replicas are added to the old ones (`adding`), copy the log
and join the in-sync set like any follower; when all that are to stay are in sync, the controller drops the
others (`removing`). So a move can be cancelled or replaced, and continues if the broker that began it dies.

Cancelling drops the replicas that the move had added. Messages committed since they joined the in-sync set
are on them too, and must not be left on fewer replicas than min.insync.replicas. Such a request is refused
until enough of the replicas that stay are in sync.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from forebay.core.cluster.image import ClusterImage
from forebay.core.cluster.image_changes import PartitionPut
from forebay.core.cluster.partition_state import PartitionState
from forebay.core.cluster.replicas.controller import desired_state, fence_removed
from forebay.core.cluster.replicas.isr_changes import MAJORITY, min_insync, needed
from forebay.core.cluster.topics.topic_requests import existing_partition
from forebay.errors import ErrorCode, KafkaError


def reassign(
    image: ClusterImage,
    topic: str,
    partition: int,
    target: Sequence[int] | None,
    *,
    allow_replication_factor_change: bool = True,
    min_insync_replicas: int = MAJORITY,
) -> list[PartitionPut]:
    """Begin a move to these replicas in this order, in place of one under way; None cancels that one.

    `min_insync_replicas` applies to topics that do not set it.
    """
    owner, state = existing_partition(image, topic, partition)
    if target is None:
        wanted = _cancelled(topic, state)
    else:
        _check_target(image, state, target)
        if len(target) != len(state.target) and not allow_replication_factor_change:
            raise KafkaError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"{topic}-{partition} has {len(state.target)} replicas, {len(target)} were given",
            )
        wanted = _moving(state, tuple(target))
    minimum = min_insync(image, topic, min_insync_replicas)
    _check_staying(topic, state, wanted, minimum)
    # This also elects another leader if the present one was added by the move that is cancelled.
    after = fence_removed(state, desired_state(wanted, image.brokers, minimum=minimum))
    return [] if after == state else [PartitionPut(topic_id=owner.topic_id, state=after)]


def reassigning(state: PartitionState) -> bool:
    return bool(state.adding or state.removing)


def _check_target(image: ClusterImage, state: PartitionState, target: Sequence[int]) -> None:
    if not target:
        raise _bad_assignment("a partition needs at least one replica")
    if len(set(target)) != len(target):
        raise _bad_assignment(f"replicas {list(target)} name a broker twice")
    # A replica may stay where it is while its broker is down; a new one needs a broker that can take it.
    unknown = [broker for broker in target if broker not in image.brokers and broker not in state.replicas]
    if unknown:
        raise _bad_assignment(f"no live broker {', '.join(map(str, unknown))}")


def _check_staying(topic: str, state: PartitionState, wanted: PartitionState, minimum: int) -> None:
    """Refuse to drop replicas with committed messages if too few others have them."""
    if not wanted.isr:
        raise _bad_assignment(
            f"{topic}-{state.index}: none of the replicas that would stay is in sync; wait until one is"
        )
    before, staying = _holders(state), _holders(wanted)
    if len(staying) < min(needed(wanted, minimum), len(before)):
        raise _bad_assignment(
            f"{topic}-{state.index}: of the replicas that would stay only {sorted(staying)} are in sync, and"
            f" min.insync.replicas asks for {needed(wanted, minimum)}; wait until more of them are"
        )


def _holders(state: PartitionState) -> set[int]:
    """The replicas that surely have all committed messages."""
    return {*state.isr, *state.eligible}


def _moving(state: PartitionState, target: tuple[int, ...]) -> PartitionState:
    original = state.original
    removing = tuple(replica for replica in original if replica not in target)
    return _with_replicas(
        state,
        (*target, *removing),
        adding=tuple(replica for replica in target if replica not in original),
        removing=removing,
    )


def _cancelled(topic: str, state: PartitionState) -> PartitionState:
    if not reassigning(state):
        raise KafkaError(
            ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, f"{topic}-{state.index} is not being reassigned"
        )
    return _with_replicas(state, state.original, adding=(), removing=())


def _with_replicas(
    state: PartitionState, replicas: tuple[int, ...], *, adding: tuple[int, ...], removing: tuple[int, ...]
) -> PartitionState:
    isr = tuple(member for member in state.isr if member in replicas)
    eligible = tuple(node for node in state.eligible if node in replicas)
    return replace(
        state,
        replicas=replicas,
        isr=isr,
        adding=adding,
        removing=removing,
        eligible=eligible,
        synced=state.synced and isr == state.isr,
    )


def _bad_assignment(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
