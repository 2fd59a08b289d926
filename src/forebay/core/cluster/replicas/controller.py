"""The controller's decisions on an image: who leads, who is in sync, when a reassignment has ended.

Three rules keep every acknowledged message. Only a member of the in-sync set is elected, or, if none is
alive, an eligible replica (`isr_changes.py`), since each of them has everything that was acknowledged with
acks=all (an unclean election breaks this, and must be enabled). The last such replicas of a partition stay
listed when they die, and there is no leader until one of them is back. And with every change of leader the
leader epoch rises, so that requests and records of an earlier leader can be recognised; also when replicas
are removed, because what they have does not count any more.

`desired_state` is the whole decision for one partition, and is idempotent. Nothing is written here: each new
state carries the partition epoch of the state it was made from, and the store refuses it if the partition has
changed since.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterator
from dataclasses import replace

from forebay.config import ControllerConfig, validate_topic_override
from forebay.core.cluster.image import ClusterImage
from forebay.core.cluster.image_changes import PartitionPut
from forebay.core.cluster.images.topic_image import TopicImage
from forebay.core.cluster.partition_state import NO_LEADER, PartitionState
from forebay.core.cluster.replicas.isr_changes import (
    MAJORITY,
    is_last,
    min_insync,
    with_heir,
    with_isr,
    without,
)

_UNCLEAN = "unclean.leader.election.enable"


def plan(
    image: ClusterImage, config: ControllerConfig, *, elections_only: bool = False
) -> list[PartitionPut]:
    """The changes that are due now that these brokers are alive; empty if all is as it should be.

    They are carried out in their order: new leaders come first, because nobody can use a partition without
    one. Of the partitions of a broker that dies, most only lose a member of their in-sync set. If there are
    thousands, those take the time of brokers and store while the last elections are on their way: so these
    can be had alone.
    """
    registered = image.registered
    decisions = Decisions(image.brokers, registered)
    elections: list[PartitionPut] = []
    others: list[PartitionPut] = []
    for topic in image.topics.values():
        unclean = may_be_unclean(image, config, topic.name)
        minimum = min_insync(image, topic.name, config.min_insync_replicas)
        for state in topic.partitions:
            if state.unsettled:
                continue  # its leader is elected by comparing the replicas' logs (`restored_partitions.py`)
            if elections_only and _keeps_leader(state, registered):
                continue
            after = decisions.desired(state, unclean=unclean, minimum=minimum)
            if after is not state:
                changes = elections if after.leader != state.leader else others
                changes.append(PartitionPut(topic_id=topic.topic_id, state=after))
    return elections if elections_only else elections + others


def _keeps_leader(state: PartitionState, registered: Container[int]) -> bool:
    """True only if `desired_state` has the same leader. The end of a move may need another."""
    return not state.adding and not state.removing and can_lead(state, state.leader, registered)


def prefer(image: ClusterImage, *, imbalance_percent_max: int = 0) -> list[PartitionPut]:
    """Return leadership to preferred replicas, for brokers that lead too few of their partitions."""
    meant: Counter[int] = Counter()
    missed: Counter[int] = Counter()
    for _, state in _settled(image):
        meant[state.replicas[0]] += 1
        missed[state.replicas[0]] += state.leader != state.replicas[0]
    return [
        PartitionPut(topic_id=topic.topic_id, state=lead(state, state.replicas[0]))
        for topic, state in _settled(image)
        if can_lead(state, state.replicas[0], image.brokers)
        and state.leader != state.replicas[0]
        and missed[state.replicas[0]] * 100 > imbalance_percent_max * meant[state.replicas[0]]
    ]


def departure(
    image: ClusterImage,
    node_id: int,
    *,
    unsynced: bool = False,
    damaged: bool = False,
    lost: bool = False,
    only: Container[tuple[str, int]] | None = None,
    min_insync_replicas: int = MAJORITY,
) -> list[PartitionPut]:
    """The changes that are due before a broker stops, or before it comes back with less data than it had.

    A broker that is about to stop leaves the in-sync sets where another live replica can take over, and that
    one leads. Elsewhere it stays.

    With `unsynced` it may lack what was not yet on its disk when the power failed; a broker that is not
    registered is treated the same. It leaves wherever another listed replica, dead or alive, has everything,
    unless its own log is known to be synced; and it leads nothing before a new election: one leader epoch
    must not have two histories. With `damaged` it may lack even what was synced. With `lost` it has nothing
    left, and leaves even where it was the last. `only` names the partitions (topic and index), if not all are
    meant.
    """
    others = image.brokers.keys() - {node_id}
    stops = node_id in image.brokers and not (unsynced or damaged or lost)

    def leave(topic: str, state: PartitionState) -> PartitionState:
        minimum = min_insync(image, topic, min_insync_replicas)
        if stops:
            return _leave(state, node_id, others, minimum)
        stays = not lost and (is_last(state, node_id) or (_is_synced(state, node_id) and not damaged))
        return _step_down(state if stays else without(state, node_id), node_id, others, minimum)

    return _changes(image, leave, only)


def withdrawal(
    image: ClusterImage,
    node_id: int,
    only: Container[tuple[str, int]],
    *,
    min_insync_replicas: int = MAJORITY,
) -> list[PartitionPut]:
    """The changes that are due when a registered broker cannot open these partitions: others may lead.

    It stays leader where no other replica has the messages. If it stepped down there, it would be elected
    again at once, and try and fail to open them again, as fast as elections can be written.
    """
    changes = departure(image, node_id, damaged=True, only=only, min_insync_replicas=min_insync_replicas)
    return [change for change in changes if not can_lead(change.state, node_id, image.brokers)]


def new_terms(image: ClusterImage, node_id: int) -> list[PartitionPut]:
    """The changes that a single broker writes after a power failure: it leads on, in new leader epochs.

    Its logs may have lost messages, and other messages will get their offsets. Clients tell the two histories
    apart by the epoch.
    """

    def begin(_topic: str, state: PartitionState) -> PartitionState:
        return lead(state, node_id) if state.leader == node_id else state

    return _changes(image, begin)


# -- one partition ----------------------------------------------------------------------------------------


def desired_state(
    state: PartitionState,
    alive: Container[int],
    *,
    registered: Container[int] | None = None,
    unclean: bool = False,
    minimum: int = MAJORITY,
) -> PartitionState:
    """The state that this partition should be in; the same object if nothing changes.

    `alive` may be elected. `registered`, if given, includes other brokers that must not be counted as dead.
    """
    if state.unreadable or is_settled(state, alive):
        return state
    here = alive if registered is None else registered
    after = _finish_move(_in_sync(state, here, minimum, unclean=unclean), alive)
    return fence_removed(state, after if can_lead(after, after.leader, here) else _elect(after, alive))


class Decisions:
    """`desired_state` of many partitions. Most have the same few states but for their index, and each of
    these is decided once."""

    def __init__(self, alive: Container[int], registered: Container[int] | None = None) -> None:
        self._alive = alive
        self._registered = registered
        self._made: dict[tuple[object, ...], PartitionState | None] = {}
        """By what a decision depends on; None if nothing changes."""

    def desired(
        self, state: PartitionState, *, unclean: bool = False, minimum: int = MAJORITY
    ) -> PartitionState:
        made = self._decide(state, unclean, minimum)
        return state if made is None else made.at(state.index, state.partition_epoch)

    def leader(self, state: PartitionState, *, minimum: int) -> int:
        """The leader in the desired state."""
        made = self._decide(state, False, minimum)
        return state.leader if made is None else made.leader

    def _decide(self, state: PartitionState, unclean: bool, minimum: int) -> PartitionState | None:
        """The desired state of a partition like this one; None if nothing changes."""
        if is_settled(state, self._alive) or state.unreadable:
            return None
        alike = (*state.decided, unclean, minimum)
        if alike not in self._made:
            registered = self._registered
            after = desired_state(state, self._alive, registered=registered, unclean=unclean, minimum=minimum)
            self._made[alike] = None if after is state else after
        return self._made[alike]


def is_settled(state: PartitionState, alive: Container[int]) -> bool:
    """True for nearly all partitions, nearly always: nothing moves, and leader and in-sync set are alive."""
    if state.leader not in alive or state.adding or state.removing:
        return False
    for member in state.isr:
        if member not in alive:
            return False
    return state.leader in state.isr


def can_lead(state: PartitionState, broker_id: int, alive: Container[int]) -> bool:
    return broker_id in state.isr and broker_id in alive


def first_able(state: PartitionState, alive: Container[int]) -> int:
    """The replica to elect: in sync, alive, and as early in the list as possible."""
    return next((replica for replica in state.replicas if can_lead(state, replica, alive)), NO_LEADER)


def lead(state: PartitionState, leader: int) -> PartitionState:
    return replace(state, leader=leader, leader_epoch=state.leader_epoch + 1)


def fence_removed(before: PartitionState, after: PartitionState) -> PartitionState:
    """In a new leader epoch, if replicas are removed: what they have proves nothing from now on.

    They delete their logs. One that is added again before it has heard that it was removed fetches on as the
    replica that it was, and would be taken for in sync, and then begin with an empty log.
    """
    is_fenced = after.leader_epoch > before.leader_epoch or set(before.replicas) <= set(after.replicas)
    return after if is_fenced else lead(after, after.leader)


def hand_over(
    state: PartitionState, node_id: int, alive: Container[int], *, minimum: int = MAJORITY
) -> PartitionState | None:
    """Let another replica lead, because this leader's log cannot be written; None if no other can."""
    after = _elect(_in_sync(without(state, node_id), alive, minimum), alive)
    return None if after.leader in (NO_LEADER, node_id) else after


def _in_sync(
    state: PartitionState, alive: Container[int], minimum: int, *, unclean: bool = False
) -> PartitionState:
    isr = tuple(member for member in state.isr if member in alive)
    if isr:
        return state if isr == state.isr else with_isr(state, isr, minimum)
    # With no member alive all of them stay listed: each has every acknowledged message, and may come back.
    after = with_heir(state, alive, minimum)
    if after is not state or not unclean:
        return after
    # The log of the first of these is the content of the partition from now on.
    isr = tuple(replica for replica in state.replicas if replica in alive)[:1]
    return replace(state, isr=isr, eligible=(), synced=False) if isr else state


def _finish_move(state: PartitionState, alive: Container[int]) -> PartitionState:
    if not state.adding and not state.removing:
        return state
    target = state.target
    if not all(can_lead(state, replica, alive) for replica in target):
        return state
    isr = tuple(member for member in state.isr if member in target)
    return replace(state, replicas=target, isr=isr, adding=(), removing=(), eligible=(), synced=False)


def _elect(state: PartitionState, alive: Container[int]) -> PartitionState:
    if can_lead(state, state.leader, alive):
        return state
    leader = first_able(state, alive)
    return state if leader == state.leader else lead(state, leader)


# -- leaving ----------------------------------------------------------------------------------------------


def _leave(state: PartitionState, node_id: int, others: Container[int], minimum: int) -> PartitionState:
    if node_id not in state.isr or not any(node in others for node in (*state.isr, *state.eligible)):
        return state
    isr = tuple(member for member in state.isr if member != node_id)
    return _step_down(with_isr(state, isr, minimum), node_id, others, minimum)


def _step_down(state: PartitionState, node_id: int, others: Container[int], minimum: int) -> PartitionState:
    if state.leader != node_id:
        return state
    after = with_heir(state, others, minimum)
    return lead(after, first_able(after, others))


def _is_synced(state: PartitionState, node_id: int) -> bool:
    return state.synced and state.isr == (node_id,)


# -- whole images -----------------------------------------------------------------------------------------


def _changes(
    image: ClusterImage,
    change: Callable[[str, PartitionState], PartitionState],
    only: Container[tuple[str, int]] | None = None,
) -> list[PartitionPut]:
    return [
        PartitionPut(topic_id=topic.topic_id, state=after)
        for topic in image.topics.values()
        for state in topic.partitions
        if (only is None or (topic.name, state.index) in only)
        and not state.unreadable
        and (after := change(topic.name, state)) is not state
    ]


def _settled(image: ClusterImage) -> Iterator[tuple[TopicImage, PartitionState]]:
    """Partitions that are not being reassigned."""
    for topic in image.topics.values():
        for state in topic.partitions:
            if not state.adding and not state.removing and not state.unreadable:
                yield topic, state


def may_be_unclean(image: ClusterImage, config: ControllerConfig, topic: str) -> bool:
    text = image.topic_config(topic).overrides.get(_UNCLEAN)
    return config.unclean_election if text is None else bool(validate_topic_override(_UNCLEAN, text))
