"""What large groups cost: joining, heartbeats and leaving, counted in CPU of this process for each member.

Each figure is a ratio of two sizes of a group: what each member costs must not grow with their number. And
what is done for one member must not look at each of the others.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Any

import pytest

from forebay.config.keys.coordinators.share import ShareGroupsConfig
from forebay.core.groups.assigned_partitions import NOTHING
from forebay.core.groups.consumer.assignors import Subscriber
from forebay.core.groups.shard import TopicInfo
from forebay.core.groups.share.assignor import simple_assignor
from forebay.core.groups.target_pace import AT_ONCE_MAX, SOON_MS, TargetPace, heartbeat_interval_ms
from forebay.errors import ErrorCode
from support.machines.consumer_runtime import ConsumerClient, ConsumerRuntime, settle
from support.machines.group_runtime import Runtime
from support.machines.share_runtime import ShareRuntime

SMALL, LARGE = 75, 600
GROWTH_MAX = 4.0
"""Eight times the members; quadratic costs would grow eightfold."""
BETWEEN_MS = 5


class _Unchecked:
    """Without the checks of the runtimes, which read the whole log after each step."""

    def check(self) -> None: ...
    def _note(self, _: Any) -> None: ...


class Classic(_Unchecked, Runtime): ...


class Consumers(_Unchecked, ConsumerRuntime): ...


class Shares(_Unchecked, ShareRuntime): ...


def with_partitions(runtime: Runtime, count: int) -> None:
    runtime.topics = {"orders": TopicInfo(b"o" * 16, count)}
    runtime.crash()


def cpu_each(count: int, work: Callable[[int], Any]) -> float:
    began = time.process_time()
    for number in range(count):
        work(number)
    return (time.process_time() - began) / count


def growth(measure: Callable[[int], list[float]]) -> list[float]:
    """How much more each step costs in a large group: the best of a few tries, since machines are busy.

    Without the garbage collector, which would go through everything that tests before this one have left.
    """
    gc.disable()
    try:
        return _growth(measure)
    finally:
        gc.enable()


def _growth(measure: Callable[[int], list[float]]) -> list[float]:
    small = [min(each) for each in zip(*(measure(SMALL) for _ in range(3)), strict=True)]
    large = [min(each) for each in zip(*(measure(LARGE) for _ in range(3)), strict=True)]
    return [after / before for before, after in zip(small, large, strict=True)]


def classic(count: int) -> list[float]:
    runtime = Classic()
    tickets: dict[str, int] = {}

    def enter(_: int) -> None:
        member_id, ticket = runtime.enter()
        tickets[member_id] = ticket

    joining = cpu_each(count, enter)
    for member_id, ticket in tickets.items():
        if ticket in runtime.answers:
            tickets[member_id] = runtime.join(member_id)
    runtime.advance(9_000)
    members = list(tickets)
    answers = [runtime.answers[tickets[each]] for each in members]
    leader = next(each for each in answers if each.leader == each.member_id)
    shares = {each.member_id: bytes(40) for each in leader.members}
    assert len(shares) == count
    generation = leader.generation_id
    syncing = cpu_each(
        count,
        lambda n: runtime.sync(members[n], generation, shares if members[n] == leader.member_id else None),
    )
    beating = cpu_each(count, lambda n: runtime.heartbeat(members[n], generation))
    runtime.leave((members[0], None))
    again = cpu_each(count - 1, lambda n: runtime.join(members[n + 1]))
    return [joining, syncing, beating, again]


def consumers(count: int) -> list[float]:
    runtime = Consumers()
    with_partitions(runtime, 1000)
    members = [ConsumerClient(runtime, f"m{n}-") for n in range(count)]

    def beat(number: int) -> None:
        runtime.now_ms += BETWEEN_MS
        settle([members[number]])

    joining = cpu_each(count, beat)
    settling = cpu_each(count, beat)
    for _ in range(3):
        cpu_each(count, beat)
    assert {len(each.owned) for each in members} <= {1000 // count, 1000 // count + 1}
    assert sum(len(each.owned) for each in members) == 1000
    return [joining, settling, cpu_each(count, beat)]


def shares(count: int) -> list[float]:
    runtime = Shares(share=ShareGroupsConfig(max_size=LARGE))
    with_partitions(runtime, 100)
    epochs = [0] * count

    def beat(number: int) -> None:
        runtime.now_ms += BETWEEN_MS
        topics = () if epochs[number] else ("orders",)
        answer = runtime.answers[runtime.send_beat(f"m{number}", epochs[number], *topics)]
        assert answer.error_code == ErrorCode.NONE
        epochs[number] = answer.member_epoch

    joining = cpu_each(count, beat)
    settling = cpu_each(count, beat)
    cpu_each(count, beat)
    assert len(set(epochs)) == 1
    return [joining, settling, cpu_each(count, beat)]


@pytest.mark.parametrize("measure", [classic, consumers, shares])
def test_a_member_of_a_large_group_costs_what_one_of_a_small_group_costs(
    measure: Callable[[int], list[float]],
) -> None:
    assert max(growth(measure)) < GROWTH_MAX


def test_ten_thousand_groups_cost_what_a_thousand_cost_each() -> None:
    def commits(count: int) -> float:
        runtime = Classic()
        return cpu_each(count, lambda n: runtime.commit(1, group_id=f"g{n}"))

    assert min(commits(10_000) for _ in range(2)) < GROWTH_MAX * min(commits(1000) for _ in range(2))


def test_members_that_join_a_large_group_together_get_one_target_together() -> None:
    runtime = Consumers()
    with_partitions(runtime, 2 * AT_ONCE_MAX)
    runtime.enter_group("first")
    runtime.enter_group("second")
    made = runtime.consumers().state.assignment_epoch
    answers = [runtime.enter_group(f"m{n}") for n in range(20)]
    assert runtime.consumers().state.assignment_epoch == made
    assert {each.heartbeat_interval_ms for each in answers} == {SOON_MS}
    assert all(each.member_epoch == made for each in answers), "they are members, without partitions yet"
    runtime.now_ms += SOON_MS
    answer = runtime.beat("m7", made)
    assert answer.member_epoch == runtime.consumers().state.epoch > made
    assert {len(runtime.consumers().state.target(f"m{n}")) for n in range(20)} <= {45, 46}


class _Members(dict[str, Any]):
    """Members by id, which nobody may go through."""

    def _refuse(self, *_: Any) -> Any:
        raise AssertionError("all members were gone through for one of them")

    __iter__ = keys = values = items = copy = _refuse


def test_a_member_that_joins_or_moves_to_a_new_epoch_costs_no_look_at_the_others() -> None:
    runtime = Consumers()
    with_partitions(runtime, 2 * AT_ONCE_MAX)
    epochs = {name: runtime.enter_group(name).member_epoch for name in "abcd"}
    runtime.now_ms += SOON_MS
    made = runtime.beat("d", epochs["d"], owned=NOTHING).member_epoch
    state = runtime.consumers().state
    state.members = _Members(state.members)
    assert runtime.beat("c", epochs["c"], owned=NOTHING).member_epoch == made > epochs["c"]
    assert runtime.enter_group("e").error_code == ErrorCode.NONE
    assert state.members["c"].epoch == made
    assert "e" in state.members


def test_a_share_member_that_moves_to_a_new_epoch_costs_no_look_at_the_others() -> None:
    runtime = Shares()
    with_partitions(runtime, 100)
    epochs = dict.fromkeys("abc", 0)
    for _ in range(3):
        for name, epoch in epochs.items():
            topics = () if epoch else ("orders",)
            epochs[name] = runtime.answers[runtime.send_beat(name, epoch, *topics)].member_epoch
    runtime.send_beat("d", 0, "orders")
    runtime.send_beat("a", epochs["a"])  # the first after a new target checks that it is complete
    state = runtime.shares().state
    state.members = _Members(state.members)
    answer = runtime.answers[runtime.send_beat("c", epochs["c"])]
    assert answer.member_epoch == state.members["c"].epoch > epochs["c"]


def test_small_groups_wait_for_nothing() -> None:
    pace = TargetPace()
    pace.made(AT_ONCE_MAX // 2, AT_ONCE_MAX // 2, 1000)
    assert pace.wait_ms(1000) == 0
    pace.made(1, AT_ONCE_MAX, 1000)
    assert 0 < pace.wait_ms(1000) < SOON_MS
    pace.made(1, 10_000_000, 1000)
    assert pace.wait_ms(1000) == 5_000
    pace.skip()
    assert pace.wait_ms(1000) == 0
    assert heartbeat_interval_ms(5_000, 0) == 5_000
    assert heartbeat_interval_ms(5_000, 1) == SOON_MS
    assert heartbeat_interval_ms(5_000, 700) == 700


def test_members_beyond_two_for_each_partition_are_spread_evenly() -> None:
    topics = {b"a" * 16: frozenset(range(7)), b"b" * 16: frozenset(range(3))}
    both, one = frozenset(topics), frozenset([b"b" * 16])
    members = {f"m{n:03}": Subscriber(topics=both if n % 5 else one) for n in range(90)}
    assigned = simple_assignor(members, topics)
    loads = {(topic, index): 0 for topic, found in topics.items() for index in found}
    for share in assigned.values():
        for partition in share:
            loads[partition] += 1
    assert max(loads.values()) - min(loads.values()) <= 1
    again = simple_assignor(
        {name: Subscriber(topics=each.topics, assigned=assigned[name]) for name, each in members.items()},
        topics,
    )
    assert again == assigned
