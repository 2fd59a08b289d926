"""Groups that change their protocol while they work: classic to consumer and back, and both in one group."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from forebay.core.groups.classic.group import State
from forebay.core.groups.classic.requests import ClassicGroup
from forebay.core.groups.consumer.heartbeat import ConsumerGroup
from forebay.core.groups.shard import TopicInfo
from forebay.errors import ErrorCode
from forebay.wire.messages.leave_group import LeaveGroupRequest
from support.clients.classic_client import ClassicClient
from support.machines.consumer_runtime import (
    ORDERS,
    SESSION_MS,
    ConsumerClient,
    ConsumerRuntime,
    assigned,
    parts,
    settle,
)
from support.machines.group_runtime import subscription

EVERYTHING = parts(ORDERS, 0, 1, 2, 3)


@pytest.fixture
def runtime() -> ConsumerRuntime:
    return ConsumerRuntime()


def classic_group(runtime: ConsumerRuntime, *names: str, cooperative: bool = False) -> list[ClassicClient]:
    clients = [ClassicClient(runtime, name, cooperative=cooperative) for name in names]
    act(clients)
    assert isinstance(runtime.shard.groups["g"], ClassicGroup)
    assert runtime.group().state is State.STABLE
    return clients


def act(clients: list[ClassicClient], rounds: int = 6) -> None:
    for _ in range(rounds):
        for client in clients:
            client.act()
        runtime = clients[0].runtime
        runtime.advance(1_000)


# -- empty groups ------------------------------------------------------------------------------------------


def test_an_empty_group_becomes_what_the_next_member_speaks(runtime: ConsumerRuntime) -> None:
    (a,) = classic_group(runtime, "a")
    runtime.commit(7, member_id=a.member_id, generation=a.generation)
    a.leave()
    assert assigned(runtime.enter_group("b")) == EVERYTHING
    assert runtime.consumers().state_name == "Stable"
    runtime.beat("b", -1)
    act([a])
    assert (a.owned, runtime.group().state) == (EVERYTHING, State.STABLE)
    assert runtime.fetch() == (7, 0)
    runtime.crash()
    assert runtime.group().state is State.STABLE
    assert runtime.fetch() == (7, 0)


def test_a_member_that_joins_with_the_id_of_the_other_protocol_can_expire(runtime: ConsumerRuntime) -> None:
    """It asked for an id with JoinGroup and came with a heartbeat: its session must not end with the id's."""
    given = runtime.answers[runtime.join()].member_id
    assert assigned(runtime.enter_group(given)) == EVERYTHING
    runtime.advance(SESSION_MS)
    assert not runtime.consumers().state.members


def test_whoever_knows_a_member_id_of_an_empty_consumer_group_is_unknown(runtime: ConsumerRuntime) -> None:
    runtime.enter_group("b")
    runtime.beat("b", -1)
    ticket = runtime.join("old")
    assert runtime.answers[ticket].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert isinstance(runtime.shard.groups["g"], ConsumerGroup)


# -- upgrade -----------------------------------------------------------------------------------------------


def test_a_working_group_is_upgraded_without_a_stop(runtime: ConsumerRuntime) -> None:
    a, b = classic_group(runtime, "a", "b")
    generation, had = a.generation, (a.owned, b.owned)
    response = runtime.enter_group("c")
    assert (response.error_code, response.member_epoch) == (0, generation + 1)
    assert assigned(response) == frozenset(), "the others have everything, and work on"
    assert (a.owned, b.owned) == had
    members = {m.member_id: m for m in runtime.describe().members}
    assert {m.member_type for m in members.values()} == {0, 1}
    code = runtime.heartbeat(a.member_id, generation)
    assert code == ErrorCode.REBALANCE_IN_PROGRESS

    c = ConsumerClient(runtime, "c")
    c.member_id = "c"
    for _ in range(3):
        act([a, b], rounds=1)
        settle([c])
    assert a.owned | b.owned | c.owned == EVERYTHING
    assert len(a.owned) + len(b.owned) + len(c.owned) == 4
    assert runtime.consumers().state_name == "Stable"
    runtime.crash()
    act([a, b], rounds=1)
    assert runtime.consumers().state_name == "Stable"


def test_cooperative_members_keep_what_they_may(runtime: ConsumerRuntime) -> None:
    (a,) = classic_group(runtime, "a", cooperative=True)
    c = ConsumerClient(runtime, "c")
    settle([c])
    a.act()
    assert len(a.owned) == 2, "joined, gave up, and joined again"
    settle([c])
    assert (a.owned | c.owned, len(c.owned)) == (EVERYTHING, 2)


def test_an_upgrade_during_a_rebalance_tells_those_who_wait(runtime: ConsumerRuntime) -> None:
    (a,) = classic_group(runtime, "a")
    b, ticket = runtime.enter()
    assert ticket not in runtime.answers, "b waits for a to join"
    runtime.enter_group("c")
    answer = runtime.answers[ticket]
    assert (answer.error_code, answer.member_id) == (ErrorCode.REBALANCE_IN_PROGRESS, b)
    assert set(runtime.consumers().state.members) == {a.member_id, b, "c"}
    again = runtime.answers[runtime.join(b)]
    assert (again.error_code, again.member_id, again.leader) == (0, b, "")


@pytest.mark.parametrize("protocol_type", ["connect", "consumer"])
def test_a_group_that_is_not_of_consumers_stays_what_it_is(
    runtime: ConsumerRuntime, protocol_type: str
) -> None:
    """Of another type, or one whose subscriptions cannot be read."""
    name, ticket = runtime.enter(protocol_type=protocol_type, protocols=[("range", b"\x00")])
    refused = runtime.enter_group("c")
    assert refused.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert list(runtime.group().members) == [name]
    assert runtime.answers[ticket].error_code == 0


def test_a_refused_member_upgrades_nothing() -> None:
    runtime = ConsumerRuntime(consumer_max_size=1)
    (a,) = classic_group(runtime, "a")
    assert runtime.enter_group("c").error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert runtime.heartbeat(a.member_id, a.generation) == ErrorCode.NONE


# -- classic members in a consumer group -------------------------------------------------------------------


def test_a_classic_member_joins_a_consumer_group(runtime: ConsumerRuntime) -> None:
    c, a = ConsumerClient(runtime, "c"), ClassicClient(runtime, "a")
    settle([c])
    a.act()
    assert a.is_in
    settle([c])
    a.act()
    a.act()
    assert (len(a.owned), a.owned | c.owned) == (2, EVERYTHING)
    code = runtime.commit(3, member_id=a.member_id, generation=a.generation)
    assert code == ErrorCode.NONE
    assert (
        runtime.commit(3, member_id=a.member_id, generation=a.generation - 1) == ErrorCode.ILLEGAL_GENERATION
    )


def test_what_a_classic_member_can_get_wrong(runtime: ConsumerRuntime) -> None:
    runtime.enter_group("c")
    a = ClassicClient(runtime, "a")
    a.act()

    def sync(member_id: str = a.member_id, generation: int = a.generation, **options: Any) -> int:
        code: int = runtime.answers[runtime.sync(member_id, generation, **options)].error_code
        return code

    assert sync(generation=a.generation + 1) == ErrorCode.ILLEGAL_GENERATION
    assert sync("c", 1) == ErrorCode.UNKNOWN_MEMBER_ID, "it does not speak this protocol"
    assert sync(protocol_type="connect") == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert sync(protocol_name="sticky") == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert runtime.heartbeat(a.member_id, a.generation + 1) == ErrorCode.ILLEGAL_GENERATION
    assert runtime.heartbeat("nobody", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    wrong: list[dict[str, Any]] = [
        {"protocol_type": "connect"},
        {"protocols": [("sticky", subscription("orders"))]},
        {"protocols": [("range", b"\xff\xff")]},
        {"protocols": []},
    ]
    for options in wrong:
        ticket = runtime.join(version=3, **options)
        assert runtime.answers[ticket].error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    runtime.enter_group("d")
    assert sync() == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_classic_member_that_does_not_join_again_is_out(runtime: ConsumerRuntime) -> None:
    runtime.enter_group("c")
    a = ClassicClient(runtime, "a")
    a.act()
    generation = a.generation
    runtime.enter_group("d")
    for _ in range(4):
        assert runtime.heartbeat(a.member_id, generation) == ErrorCode.REBALANCE_IN_PROGRESS
        runtime.advance(5_000)
    assert runtime.heartbeat(a.member_id, generation) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_classic_member_that_does_not_sync_is_out(runtime: ConsumerRuntime) -> None:
    runtime.enter_group("c")
    name, ticket = runtime.enter(rebalance_ms=20_000)
    generation = runtime.answers[ticket].generation_id
    for _ in range(4):
        runtime.advance(5_000)
        runtime.heartbeat(name, generation)
    assert name not in runtime.consumers().state.members


def test_a_silent_classic_member_is_out_after_its_own_session(runtime: ConsumerRuntime) -> None:
    runtime.enter_group("c")
    a = ClassicClient(runtime, "a")
    a.act()
    runtime.advance(9_999)
    assert a.member_id in runtime.consumers().state.members
    runtime.advance(1)
    assert a.member_id not in runtime.consumers().state.members


def test_classic_members_leave(runtime: ConsumerRuntime) -> None:
    runtime.enter_group("c")
    a, s = ClassicClient(runtime, "a"), ClassicClient(runtime, "s", "one")
    for client in (a, s):
        client.act()
    codes = runtime.leave((a.member_id, None), ("nobody", None), ("", "one"), ("", "two"))
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert codes == [0, unknown, 0, unknown]
    assert set(runtime.consumers().state.members) == {"c"}
    a.restart()
    a.act()
    request = LeaveGroupRequest(group_id="g", member_id=a.member_id)
    assert runtime.ask("leave_group", request, 1).error_code == 0


def test_an_administrator_removes_members_of_the_consumer_protocol(runtime: ConsumerRuntime) -> None:
    members = [ConsumerClient(runtime, name, instance) for name, instance in (("c", None), ("s", "one"))]
    members.append(ConsumerClient(runtime, "left", None))
    settle(members)
    had = members[0].owned | members[1].owned | members[2].owned
    assert runtime.leave(("other", "one")) == [ErrorCode.FENCED_INSTANCE_ID]
    assert runtime.leave(("", "one"), (members[0].member_id, None)) == [0, 0]
    assert set(runtime.consumers().state.members) == {members[2].member_id}
    assert members[1].beat() == ErrorCode.UNKNOWN_MEMBER_ID
    settle(members[2:])
    assert members[2].owned == had, "what the removed members had is read by the member that is left"


def test_a_static_member_switches_its_protocol(runtime: ConsumerRuntime) -> None:
    runtime.enter_group("c")
    classic = ClassicClient(runtime, "s", "one")
    classic.act()
    modern = ConsumerClient(runtime, "s", "one")
    settle([modern])
    assert set(runtime.consumers().state.members) == {"c", "s1"}
    code = runtime.heartbeat(classic.member_id, classic.generation, instance_id="one")
    assert code == ErrorCode.FENCED_INSTANCE_ID
    again = ClassicClient(runtime, "s", "one")
    again.act()
    assert set(runtime.consumers().state.members) == {"c", again.member_id}
    assert modern.beat() == ErrorCode.FENCED_INSTANCE_ID


# -- downgrade ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["leaves", "dies", "switches"])
def test_without_members_of_the_new_protocol_the_group_is_classic_again(
    runtime: ConsumerRuntime, how: str
) -> None:
    a, b = classic_group(runtime, "a", "b")
    c = ConsumerClient(runtime, "c", "one")
    for _ in range(4):
        settle([c])
        act([a, b], rounds=1)
    clients = [a, b]
    if how == "leaves":
        c.leave()
    elif how == "switches":
        clients.append(ClassicClient(runtime, "c", "one"))
        clients[-1].act()
    else:
        act([a, b], rounds=46)
    assert isinstance(runtime.shard.groups["g"], ClassicGroup)
    act(clients)
    assert runtime.group().state is State.STABLE
    assert frozenset().union(*(client.owned for client in clients)) == EVERYTHING
    assert sum(len(client.owned) for client in clients) == 4
    runtime.crash()
    assert runtime.group().state is State.STABLE


def test_members_are_told_gently_of_a_downgrade(runtime: ConsumerRuntime) -> None:
    (a,) = classic_group(runtime, "a")
    c = ConsumerClient(runtime, "c")
    for _ in range(3):
        settle([c])
        act([a], rounds=1)
    generation = a.generation
    c.leave()
    runtime.advance(0)
    assert runtime.heartbeat(a.member_id, generation) == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_downgrade_is_followed_by_a_rebalance_even_after_a_crash(runtime: ConsumerRuntime) -> None:
    (a,) = classic_group(runtime, "a")
    c = ConsumerClient(runtime, "c")
    for _ in range(3):
        settle([c])
        act([a], rounds=1)
    assert len(a.owned) == 2
    c.leave()
    runtime.crash()
    act([a])
    assert a.owned == EVERYTHING


# -- at random ---------------------------------------------------------------------------------------------


class MixedWalk(RuleBasedStateMachine):
    """Members of both protocols come and go; no partition is ever owned by two of them."""

    def __init__(self) -> None:
        super().__init__()
        self.runtime = ConsumerRuntime()
        self.modern = [ConsumerClient(self.runtime, "m"), ConsumerClient(self.runtime, "n", "one")]
        self.classic = [
            ClassicClient(self.runtime, "a"),
            ClassicClient(self.runtime, "b", cooperative=True),
            ClassicClient(self.runtime, "c", "two"),
        ]
        self.everybody: list[ConsumerClient | ClassicClient] = [*self.modern, *self.classic]

    modern_indexes = st.integers(0, 1)
    classic_indexes = st.integers(0, 2)

    @rule(index=modern_indexes, lost=st.booleans())
    def beat(self, index: int, lost: bool) -> None:
        client = self.modern[index]
        client.beat(lost=lost)
        client.give_up()

    @rule(index=classic_indexes)
    def act(self, index: int) -> None:
        self.classic[index].act()
        self.hear()

    @rule(rounds=st.integers(1, 3))
    def classic_members_act(self, rounds: int) -> None:
        for _ in range(rounds):
            for client in self.classic:
                client.act()
            self.hear()

    def hear(self) -> None:
        for client in self.classic:
            client.hear()

    @rule(index=modern_indexes)
    def modern_leaves(self, index: int) -> None:
        self.modern[index].leave()
        self.hear()

    @rule(index=classic_indexes)
    def classic_leaves(self, index: int) -> None:
        if self.classic[index].is_in:
            self.classic[index].leave()
            self.hear()

    @rule(index=modern_indexes)
    def modern_dies(self, index: int) -> None:
        self.modern[index].restart()

    @rule(index=classic_indexes)
    def classic_dies(self, index: int) -> None:
        self.classic[index].restart()

    @rule(ms=st.sampled_from([1, 3_000, 9_000, 10_000, 50_000]))
    def wait(self, ms: int) -> None:
        before = self.members()
        self.runtime.advance(ms)
        gone = before - self.members()
        for client in self.everybody:
            if client.member_id in gone:
                client.restart()
        self.hear()

    def members(self) -> set[str]:
        group = self.runtime.shard.groups.get("g")
        if isinstance(group, ConsumerGroup):
            return set(group.state.members)
        return set(group.members) if isinstance(group, ClassicGroup) else set()

    @rule(count=st.integers(4, 9))
    def grow(self, count: int) -> None:
        count = max(count, self.runtime.topics["orders"].partitions)
        self.runtime.see_topics({**self.runtime.topics, "orders": TopicInfo(ORDERS, count)})

    @rule()
    def crash(self) -> None:
        self.runtime.crash()
        for client in self.classic:
            if client.waits_join is not None or client.waits_sync is not None:
                client.waits_join = client.waits_sync = None
                client.generation, client.owned = -1, frozenset()

    @invariant()
    def nobody_shares_a_partition(self) -> None:
        owned = [each for client in self.everybody for each in client.owned]
        assert len(owned) == len(set(owned))

    @rule(with_modern=st.booleans())
    def come_to_rest(self, with_modern: bool) -> None:
        if not with_modern:
            for client in self.modern:
                client.leave()
        for _ in range(25):
            if with_modern:
                for client in self.modern:
                    client.beat()
                    client.give_up()
            for member in self.classic:
                member.act()
            self.hear()
            self.wait(2_500)
        group = self.runtime.shard.groups["g"]
        assert isinstance(group, ConsumerGroup if with_modern else ClassicGroup)
        assert group.state_name == "Stable"
        clients = self.everybody if with_modern else self.everybody[len(self.modern) :]
        assert self.members() == {client.member_id for client in clients}
        owned = {each for client in clients for each in client.owned}
        assert len(owned) == self.runtime.topics["orders"].partitions


TestMixedWalk = MixedWalk.TestCase
TestMixedWalk.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
