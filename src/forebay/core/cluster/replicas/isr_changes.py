"""How the in-sync set of a partition changes, and which other replicas may lead.

A message is committed when every in-sync replica has it, but not while fewer are in sync than
min.insync.replicas. So when the set shrinks below that number, the replicas that leave it have every
committed message, and nothing more is committed: they are *eligible*, and may lead when no in-sync member is
alive. They stop being eligible when enough replicas are in sync again: from then on messages are committed
without them.

Why it matters: a machine that lost power looks alive until its lease ends. If the others stop before that, it
is the last in-sync member, and it lacks the messages that it had not synced. The others have them.

A leader that is the only in-sync replica syncs its log and records that in the state (`synced`). From then on
a power failure loses nothing, and it need not leave in favour of eligible replicas, which may not have
synced.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace

from forebay.config import validate_topic_override
from forebay.core.cluster.image import ClusterImage
from forebay.core.cluster.partition_state import PartitionState

MAJORITY = -1
"""The value of min.insync.replicas that means a majority of the replicas."""
_MIN_INSYNC = "min.insync.replicas"


def min_insync(image: ClusterImage, topic: str, default: int = MAJORITY) -> int:
    """The topic's min.insync.replicas, or else the default."""
    text = image.topic_config(topic).overrides.get(_MIN_INSYNC)
    return default if text is None else int(str(validate_topic_override(_MIN_INSYNC, text)))


def needed(state: PartitionState, minimum: int) -> int:
    """The number of in-sync replicas that a commit needs; never more than there are replicas."""
    count = len(state.original)
    return min(minimum, count) if minimum > 0 else count // 2 + 1


def commits(state: PartitionState, minimum: int) -> bool:
    """True if the in-sync replicas may commit messages. False while the store lists eligible replicas."""
    return not state.eligible and len(state.isr) >= needed(state, minimum)


def with_isr(state: PartitionState, isr: tuple[int, ...], minimum: int) -> PartitionState:
    """The state with another in-sync set; every replica that leaves it has all committed messages."""
    if isr == state.isr and not state.eligible and not state.synced:
        return state
    enough = len(isr) >= needed(state, minimum)
    candidates = (*state.eligible, *state.isr)
    return replace(
        state,
        isr=isr,
        eligible=() if enough else tuple(node for node in dict.fromkeys(candidates) if node not in isr),
        synced=state.synced and not enough and set(isr) == set(state.isr),
    )


def without(state: PartitionState, node: int) -> PartitionState:
    """The state without a replica that lacks messages: it is neither in sync nor eligible."""
    if node not in state.isr:
        return state if node not in state.eligible else replace(state, eligible=_less(state.eligible, node))
    return replace(state, isr=_less(state.isr, node), eligible=_less(state.eligible, node), synced=False)


def with_heir(state: PartitionState, alive: Container[int], minimum: int) -> PartitionState:
    """If no in-sync member is alive, let a live eligible replica take their place."""
    if any(member in alive for member in state.isr):
        return state
    heir = next((node for node in state.replicas if node in state.eligible and node in alive), None)
    return state if heir is None else with_isr(state, (heir,), minimum)


def is_last(state: PartitionState, node: int) -> bool:
    """True if no other replica may have all committed messages."""
    return all(other == node for other in (*state.isr, *state.eligible))


def _less(nodes: tuple[int, ...], node: int) -> tuple[int, ...]:
    return tuple(each for each in nodes if each != node)
