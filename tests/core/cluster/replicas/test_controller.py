"""The controller's decisions: case by case, then on every small partition, then along random histories.

The histories have an oracle of their own. Each replica holds a set of messages; a message is acknowledged
when every in-sync member has it. However brokers die, return, lose power or disks, move and shrink in
between: whoever leads has every message that was acknowledged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from itertools import combinations, permutations, product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forebay.config import ControllerConfig
from forebay.core.cluster.image import ClusterImage
from forebay.core.cluster.image_changes import (
    BrokerDeleted,
    BrokerPut,
    ConfigOwner,
    ConfigPut,
    PartitionPut,
    TopicPut,
)
from forebay.core.cluster.images.topic_image import TopicRecord
from forebay.core.cluster.partition_state import NO_LEADER, PartitionState
from forebay.core.cluster.registration import BrokerRegistration
from forebay.core.cluster.replicas.controller import (
    Decisions,
    departure,
    desired_state,
    new_terms,
    plan,
    prefer,
    withdrawal,
)
from forebay.core.cluster.replicas.isr_changes import MAJORITY, commits, is_last, with_isr
from forebay.core.cluster.replicas.reassignment import reassign
from forebay.core.cluster.replicas.requested_elections import elect
from forebay.errors import KafkaError

CONFIG = ControllerConfig()
TOPIC_ID = b"0123456789abcdef"


def brokers(*ids: int) -> list[BrokerPut]:
    return [BrokerPut(registration=BrokerRegistration(id=number, host="h", port=9)) for number in ids]


def image_of(*states: PartitionState, alive: Iterable[int]) -> ClusterImage:
    record = TopicRecord(name="t", topic_id=TOPIC_ID, assignment=tuple(state.replicas for state in states))
    image = ClusterImage(cluster_id="c").apply([*brokers(*alive), TopicPut(record=record)])
    return image.apply(PartitionPut(topic_id=TOPIC_ID, state=state) for state in states)


def partition(
    leader: int,
    isr: tuple[int, ...],
    replicas: tuple[int, ...] = (1, 2, 3),
    *,
    index: int = 0,
    epoch: int = 5,
) -> PartitionState:
    return PartitionState(
        index=index, leader=leader, leader_epoch=epoch, isr=isr, replicas=replicas, partition_epoch=77
    )


def planned(image: ClusterImage, config: ControllerConfig = CONFIG) -> list[tuple[int, int, tuple[int, ...]]]:
    """Leader, epoch and in-sync set of every partition that changes."""
    return [summary(change) for change in plan(image, config)]


def summary(change: PartitionPut) -> tuple[int, int, tuple[int, ...]]:
    return change.state.leader, change.state.leader_epoch, change.state.isr


# -- deaths and returns -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("leader", "isr", "alive", "expected"),
    [
        (1, (1, 2, 3), {1, 2, 3}, None),
        # A dead leader is followed by the first replica that is in sync and alive.
        (1, (1, 2, 3), {2, 3}, (2, 6, (2, 3))),
        (1, (3, 1), {2, 3}, (3, 6, (3,))),
        (1, (1, 2, 3), {3}, (3, 6, (3,))),
        # A dead follower leaves the set, and the epoch stays.
        (1, (1, 2, 3), {1, 3}, (1, 5, (1, 3))),
        (2, (2, 3), {1, 2}, (2, 5, (2,))),
        # The last members stay listed.
        (1, (1,), {2, 3}, (NO_LEADER, 6, (1,))),
        (1, (1, 2), {3}, (NO_LEADER, 6, (1, 2))),
        (1, (1, 2, 3), set(), (NO_LEADER, 6, (1, 2, 3))),
        # Whoever of them comes back leads.
        (NO_LEADER, (1, 2), {2, 3}, (2, 6, (2,))),
        (NO_LEADER, (1,), {1, 2, 3}, (1, 6, (1,))),
        (NO_LEADER, (1,), {2, 3}, None),
        # What is lost stays lost.
        (NO_LEADER, (), {1, 2, 3}, None),
    ],
)
def test_who_leads_and_who_is_in_sync(
    leader: int, isr: tuple[int, ...], alive: set[int], expected: tuple[int, int, tuple[int, ...]] | None
) -> None:
    image = image_of(partition(leader, isr), alive=alive)
    assert planned(image) == ([] if expected is None else [expected])


@pytest.mark.parametrize(
    ("leader", "isr", "alive", "expected"),
    [
        (1, (1,), {3, 2}, (2, 6, (2,))),
        (NO_LEADER, (), {3}, (3, 6, (3,))),
        (NO_LEADER, (1,), {1, 2}, (1, 6, (1,))),
        (1, (1,), set(), (NO_LEADER, 6, (1,))),
    ],
)
def test_an_unclean_election_takes_whoever_is_left(
    leader: int, isr: tuple[int, ...], alive: set[int], expected: tuple[int, int, tuple[int, ...]]
) -> None:
    image = image_of(partition(leader, isr), alive=alive)
    assert planned(image, ControllerConfig(unclean_election=True)) == [expected]


@pytest.mark.parametrize("enabled", [False, True])
def test_a_topic_decides_on_unclean_elections_before_the_broker(enabled: bool) -> None:
    setting = {"unclean.leader.election.enable": str(enabled).lower()}
    image = image_of(partition(NO_LEADER, (1,)), alive={2}).apply(
        [ConfigPut(owner=ConfigOwner.TOPIC, name="t", overrides=setting)]
    )
    config = ControllerConfig(unclean_election=not enabled)
    assert planned(image, config) == ([(2, 6, (2,))] if enabled else [])


def test_partitions_without_a_leader_come_before_those_that_lose_a_follower() -> None:
    """All of them change when a broker dies, and the first to be written are the first to be led again."""
    leaders = [3, 1, 2, 1, 2, 3, 1]
    states = [partition(leader, (1, 2, 3), index=index) for index, leader in enumerate(leaders)]
    image = image_of(*states, alive={2, 3})
    changes = plan(image, CONFIG)
    assert [change.state.index for change in changes] == [1, 3, 6, 0, 2, 4, 5]
    assert plan(image, CONFIG, elections_only=True) == changes[:3]


def test_a_change_keeps_the_partition_epoch_that_it_was_made_from() -> None:
    (change,) = plan(image_of(partition(1, (1, 2)), alive={2}), CONFIG)
    assert change.state.partition_epoch == 77


# -- the end of moves -------------------------------------------------------------------------------------


def moving(leader: int, isr: tuple[int, ...]) -> PartitionState:
    """From 1, 2, 3 to 4, 2."""
    state = partition(leader, isr, replicas=(4, 2, 1, 3))
    return replace(state, adding=(4,), removing=(1, 3))


def test_a_move_waits_until_all_that_stay_are_in_sync() -> None:
    assert planned(image_of(moving(1, (1, 2, 3)), alive={1, 2, 3, 4})) == []
    assert planned(image_of(moving(1, (1, 3, 4)), alive={1, 2, 3, 4})) == []


def test_a_move_ends_with_a_new_leader_if_the_old_one_leaves() -> None:
    (change,) = plan(image_of(moving(1, (1, 2, 3, 4)), alive={1, 2, 3, 4}), CONFIG)
    assert change.state == partition(4, (2, 4), replicas=(4, 2), epoch=6)


def test_a_move_ends_under_its_leader_if_that_stays() -> None:
    (change,) = plan(image_of(moving(2, (2, 4)), alive={2, 4}), CONFIG)
    assert change.state == partition(2, (2, 4), replicas=(4, 2), epoch=6)


def test_a_move_goes_on_when_its_leader_dies() -> None:
    (change,) = plan(image_of(moving(1, (1, 3)), alive={2, 3, 4}), CONFIG)
    assert change.state == replace(moving(3, (3,)), leader_epoch=6, eligible=(1,))


# -- every small partition --------------------------------------------------------------------------------


def subsets(items: Iterable[int]) -> list[tuple[int, ...]]:
    pool = tuple(items)
    return [chosen for size in range(len(pool) + 1) for chosen in combinations(pool, size)]


def test_every_partition_of_three_replicas_is_settled_at_once() -> None:
    for isr, alive, unclean in product(subsets((1, 2, 3)), subsets((1, 2, 3)), (False, True)):
        for leader in (NO_LEADER, *isr):
            before = partition(leader, isr)
            after = desired_state(before, alive, unclean=unclean)
            check_settled(before, after, alive, unclean=unclean)


@given(st.data())
def test_every_moving_partition_is_settled_at_once(data: st.DataObject) -> None:
    replicas = tuple(data.draw(st.permutations(range(1, 6))))[: data.draw(st.integers(1, 5))]
    roles = [data.draw(st.sampled_from(["stays", "comes", "goes"])) for _ in replicas]
    if "stays" not in roles and "comes" not in roles:
        roles[0] = "stays"
    isr = tuple(data.draw(st.sets(st.sampled_from(replicas))))
    before = replace(
        partition(data.draw(st.sampled_from((NO_LEADER, *isr))), isr, replicas),
        adding=tuple(r for r, role in zip(replicas, roles, strict=True) if role == "comes"),
        removing=tuple(r for r, role in zip(replicas, roles, strict=True) if role == "goes"),
    )
    alive, unclean = data.draw(st.sets(st.integers(1, 5))), data.draw(st.booleans())
    check_settled(before, desired_state(before, alive, unclean=unclean), alive, unclean=unclean)


@given(st.data())
def test_partitions_that_are_alike_are_decided_alike(data: st.DataObject) -> None:
    nodes = st.integers(1, 3)
    sets = st.lists(nodes, unique=True, max_size=3).map(tuple)
    states = [
        replace(
            partition(data.draw(st.sampled_from((NO_LEADER, 1, 2))), data.draw(sets), index=index),
            eligible=data.draw(st.sampled_from([(), (3,)])),
            removing=data.draw(st.sampled_from([(), (1,)])),
            unreadable=data.draw(st.booleans()),
            partition_epoch=index + 70,
        )
        for index in range(8)
    ]
    alive, registered = data.draw(st.sets(nodes)), {1, 2, 3}
    decisions = Decisions(alive, registered)
    for state in states:
        for unclean, minimum in product((False, True), (MAJORITY, 1)):
            wanted = desired_state(state, alive, registered=registered, unclean=unclean, minimum=minimum)
            found = decisions.desired(state, unclean=unclean, minimum=minimum)
            assert found == wanted
            assert (found is state) == (wanted is state)
            if not unclean:
                assert decisions.leader(state, minimum=minimum) == wanted.leader
    image = image_of(*(replace(state, unreadable=False) for state in states), alive=alive)
    before = [state.leader for state in image.topics["t"].partitions]
    everything = plan(image, CONFIG)
    elections = [change for change in everything if change.state.leader != before[change.state.index]]
    assert plan(image, CONFIG, elections_only=True) == elections


def begins_a_term(before: PartitionState, after: PartitionState) -> bool:
    return after.leader != before.leader or not set(before.replicas) <= set(after.replicas)


def check_settled(
    before: PartitionState, after: PartitionState, alive: Iterable[int], *, unclean: bool
) -> None:
    live = set(alive)
    assert desired_state(after, live, unclean=unclean) is after
    assert after.leader == NO_LEADER or after.leader in live & set(after.isr) & set(after.replicas)
    assert set(after.isr) <= set(after.replicas)
    assert after.leader_epoch == before.leader_epoch + begins_a_term(before, after)
    assert bool(after.isr) >= bool(before.isr)
    assert after.target == before.target
    if not unclean:
        assert set(after.isr) <= set(before.isr)
        assert (after.leader == NO_LEADER) == (not live & set(before.isr))
    if after.leader != NO_LEADER:
        assert set(after.isr) <= live


# -- preferred leaders ------------------------------------------------------------------------------------


def test_leadership_goes_back_to_first_replicas_that_can() -> None:
    image = image_of(
        partition(2, (1, 2), (1, 2), index=0),
        partition(2, (2,), (1, 2), index=1),
        partition(2, (2, 4), (4, 2), index=2),
        partition(1, (1, 2), (1, 2), index=3),
        replace(partition(2, (1, 2), (1, 2, 3), index=4), adding=(3,)),
        alive={1, 2, 3},
    )
    assert [(change.state.index, *summary(change)) for change in prefer(image)] == [(0, 1, 6, (1, 2))]


@pytest.mark.parametrize(("away", "percent", "moves"), [(2, 20, 0), (3, 20, 3), (1, 0, 1), (10, 100, 0)])
def test_a_small_imbalance_is_left_alone(away: int, percent: int, moves: int) -> None:
    states = [partition(2 if n < away else 1, (1, 2), (1, 2), index=n) for n in range(10)]
    assert len(prefer(image_of(*states, alive={1, 2}), imbalance_percent_max=percent)) == moves


def test_nothing_is_left_to_prefer_afterwards() -> None:
    image = image_of(partition(2, (1, 2)), alive={1, 2, 3})
    after = image.apply(prefer(image))
    assert prefer(after) == plan(after, CONFIG) == []


# -- leaving ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("leader", "isr", "alive", "how", "expected"),
    [
        # About to stop: whoever else is in sync and alive takes over.
        (1, (1, 2, 3), {1, 2, 3}, {}, (2, 6, (2, 3))),
        (1, (1, 3), {1, 2, 3}, {}, (3, 6, (3,))),
        (2, (1, 2, 3), {1, 2, 3}, {}, (2, 5, (2, 3))),
        (2, (2, 3), {1, 2, 3}, {}, None),
        (1, (1,), {1, 2, 3}, {}, None),
        (1, (1, 2), {1, 3}, {}, None),
        # Its power failed: others are trusted more, even those that are away.
        (1, (1, 2), {1, 3}, {"unsynced": True}, (NO_LEADER, 6, (2,))),
        (1, (1, 2), {3}, {}, (NO_LEADER, 6, (2,))),
        (1, (1, 2), {2, 3}, {}, (2, 6, (2,))),
        (2, (1, 2), {2}, {}, (2, 5, (2,))),
        (1, (1,), {1, 2}, {"unsynced": True}, (NO_LEADER, 6, (1,))),
        (NO_LEADER, (1,), {2}, {}, None),
        # Its disk is empty: it leaves even as the last.
        (1, (1,), {1, 2}, {"lost": True}, (NO_LEADER, 6, ())),
        (NO_LEADER, (1,), {2}, {"lost": True}, (NO_LEADER, 5, ())),
        (1, (1, 2), {1, 2}, {"lost": True}, (2, 6, (2,))),
        (1, (1, 2), {3}, {"lost": True}, (NO_LEADER, 6, (2,))),
    ],
)
def test_a_broker_leaves(
    leader: int,
    isr: tuple[int, ...],
    alive: set[int],
    how: dict[str, Any],
    expected: tuple[int, int, tuple[int, ...]] | None,
) -> None:
    image = image_of(partition(leader, isr), alive=alive)
    assert [summary(change) for change in departure(image, 1, **how)] == ([expected] if expected else [])


def test_new_terms_begin_where_the_broker_leads() -> None:
    led, other = partition(1, (1,)), partition(2, (2, 1), index=1)
    (change,) = new_terms(image_of(led, other, alive=[]), 1)
    assert change.state == replace(led, leader_epoch=led.leader_epoch + 1)


@pytest.mark.parametrize(
    ("leader", "isr", "eligible", "alive", "expected"),
    [
        (1, (1, 2, 3), (), {1, 2, 3}, (2, 6, (2, 3))),
        (2, (1, 2, 3), (), {1, 2, 3}, (2, 5, (2, 3))),
        (1, (1, 2), (), {1, 3}, (NO_LEADER, 6, (2,))),
        (1, (1,), (3,), {1, 3}, (3, 6, (3,))),
        # Nobody else has the messages: it would be elected again at once.
        (1, (1,), (), {1, 2, 3}, None),
        (1, (1,), (), {1}, None),
    ],
)
def test_others_lead_what_a_broker_cannot_open(
    leader: int,
    isr: tuple[int, ...],
    eligible: tuple[int, ...],
    alive: set[int],
    expected: tuple[int, int, tuple[int, ...]] | None,
) -> None:
    image = image_of(replace(partition(leader, isr), eligible=eligible), alive=alive)
    changes = withdrawal(image, 1, {("t", 0)})
    assert [summary(change) for change in changes] == ([expected] if expected else [])


def test_a_broker_that_cannot_open_a_partition_and_the_controller_come_to_an_end() -> None:
    members = [each for count in range(4) for each in combinations((1, 2, 3), count)]
    for isr, eligible, alive in product(members, members, members):
        state = replace(partition(1, isr), eligible=tuple(node for node in eligible if node not in isr))
        image = image_of(state, alive={1, *alive})
        image = image.apply(withdrawal(image, 1, {("t", 0)}))
        image = image.apply(plan(image, CONFIG))
        image = image.apply(withdrawal(image, 1, {("t", 0)}))
        assert not plan(image, CONFIG), (isr, eligible, alive)


# -- histories --------------------------------------------------------------------------------------------

NODES = (1, 2, 3, 4)
ACTIONS = (
    *("write", "write", "grow", "shrink", "plan", "plan", "prefer", "elect", "reassign", "cancel"),
    *("sync", "die", "comes_back", "power", "disk", "stop"),
)
steps = st.lists(
    st.tuples(
        st.sampled_from(ACTIONS),
        st.sampled_from(NODES),
        st.integers(0, 1),
        st.sampled_from(list(permutations(NODES))),
        st.integers(1, 4),
    ),
    min_size=20,
    max_size=80,
)


class History:
    """Two partitions on four brokers, the messages of every replica, and those that were acknowledged."""

    def __init__(self) -> None:
        states = (partition(1, (1, 2, 3), epoch=0), partition(2, (2, 3), (2, 3), index=1, epoch=0))
        self.image = image_of(*states, alive=NODES)
        self.held: dict[tuple[int, int], set[int]] = {(n, p): set() for n in NODES for p in range(2)}
        self.acked: tuple[set[int], set[int]] = (set(), set())
        self.lost: set[int] = set()
        """Partitions whose last in-sync member lost its disk."""
        self.last = 0

    def state(self, index: int) -> PartitionState:
        return self.image.topics["t"].partitions[index]

    def put(self, changes: Iterable[PartitionPut]) -> None:
        for change in changes:
            before = self.state(change.state.index)
            assert change.state.leader_epoch >= before.leader_epoch
            assert (change.state.leader_epoch > before.leader_epoch) == begins_a_term(before, change.state)
            self.image = self.image.apply([change])

    def leads(self, index: int) -> bool:
        return self.state(index).leader in self.image.brokers

    # A message counts once every in-sync member has it, and enough are; one that is away is waited for.
    def write(self, node: int, index: int, order: tuple[int, ...], count: int) -> None:
        state = self.state(index)
        if self.leads(index) and set(state.isr) <= set(self.image.brokers) and commits(state, MAJORITY):
            self.last += 1
            for member in state.isr:
                self.held[member, index].add(self.last)
            self.acked[index].add(self.last)

    def grow(self, node: int, index: int, order: tuple[int, ...], count: int) -> None:
        state = self.state(index)
        if self.leads(index) and node in state.replicas and node not in state.isr and self.alive(node):
            self.held[node, index] = set(self.held[state.leader, index])
            self.put([PartitionPut(topic_id=TOPIC_ID, state=with_isr(state, (*state.isr, node), MAJORITY))])

    def shrink(self, node: int, index: int, order: tuple[int, ...], count: int) -> None:
        state = self.state(index)
        if self.leads(index) and node in state.isr and node != state.leader:
            isr = tuple(member for member in state.isr if member != node)
            self.put([PartitionPut(topic_id=TOPIC_ID, state=with_isr(state, isr, MAJORITY))])

    def sync(self, node: int, index: int, order: tuple[int, ...], count: int) -> None:
        state = self.state(index)
        if self.leads(index) and state.isr == (state.leader,) and state.eligible:
            self.put([PartitionPut(topic_id=TOPIC_ID, state=replace(state, synced=True))])

    def alive(self, node: int) -> bool:
        return node in self.image.brokers

    def die(self, node: int, index: int, order: tuple[int, ...], count: int) -> None:
        self.image = self.image.apply([BrokerDeleted(id=node)])

    def comes_back(self, node: int, index: int, order: tuple[int, ...], count: int) -> None:
        self.image = self.image.apply(brokers(node))

    def power(self, node: int, index: int, order: tuple[int, ...], count: int) -> None:
        """What a lone member acknowledged it has synced; of the rest, nothing is certain."""
        self.die(node, index, order, count)
        for number in range(2):
            state = self.state(number)
            if not is_last(state, node) and not (state.synced and state.isr == (node,)):
                self.held[node, number] = set()
        self.put(departure(self.image, node))
        self.comes_back(node, index, order, count)

    def disk(self, node: int, index: int, order: tuple[int, ...], count: int) -> None:
        self.die(node, index, order, count)
        for number in range(2):
            self.held[node, number] = set()
            if is_last(self.state(number), node):
                self.acked[number].clear()
                self.lost.add(number)
        self.put(departure(self.image, node, lost=True))
        self.comes_back(node, index, order, count)

    def stop(self, node: int, index: int, order: tuple[int, ...], count: int) -> None:
        if self.alive(node):
            led = [number for number in range(2) if self.leads(number)]
            self.put(departure(self.image, node))
            assert all(self.leads(number) for number in led)
            self.die(node, index, order, count)

    def prefer(self, node: int, index: int, order: tuple[int, ...], count: int) -> None:
        self.put(prefer(self.image))

    def elect(self, node: int, index: int, order: tuple[int, ...], count: int) -> None:
        self.ask(lambda: elect(self.image, "t", index))

    def reassign(self, node: int, index: int, order: tuple[int, ...], count: int) -> None:
        self.ask(lambda: reassign(self.image, "t", index, order[:count]))

    def cancel(self, node: int, index: int, order: tuple[int, ...], count: int) -> None:
        self.ask(lambda: reassign(self.image, "t", index, None))

    def ask(self, decide: Callable[[], list[PartitionPut]]) -> None:
        with suppress(KafkaError):
            self.put(decide())

    def plan(self, node: int, index: int, order: tuple[int, ...], count: int) -> None:
        self.put(plan(self.image, CONFIG))
        assert plan(self.image, CONFIG) == []

    def check(self) -> None:
        for index in range(2):
            state = self.state(index)
            assert set(state.isr) <= set(state.replicas)
            assert state.isr or state.eligible or index in self.lost
            assert not set(state.isr) & set(state.eligible)
            assert set(state.eligible) <= set(state.replicas)
            assert set(state.adding) | set(state.removing) <= set(state.replicas)
            if state.leader != NO_LEADER:
                assert state.leader in state.isr
            for member in (*state.isr, *state.eligible):
                assert self.held[member, index] >= self.acked[index]


@settings(max_examples=100, deadline=None)
@given(steps)
def test_whoever_leads_has_all_that_was_acknowledged(
    story: list[tuple[str, int, int, tuple[int, ...], int]],
) -> None:
    history = History()
    for name, node, index, order, count in story:
        getattr(history, name)(node, index, tuple(order), count)
        history.check()
    # When all are back, everything is led again, but for what lost its last disk.
    history.image = history.image.apply(brokers(*NODES))
    history.plan(1, 0, NODES, 1)
    for index in range(2):
        state = history.state(index)
        assert history.leads(index) == bool(state.isr or state.eligible)
