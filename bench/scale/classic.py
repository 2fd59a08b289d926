"""Classic consumer groups by their number of members: how long one takes to form, and to go on without one.

Each member has a connection of its own: an answer to a join waits until all have joined. All of them are in
one process, so their own time is in the seconds, too; it is shown beside.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from bench.client import Client, expect_success
from bench.groups import Member, find_coordinator, rebalance
from bench.scale.curve import Row
from bench.server import BenchError, ForebayServer
from forebay.errors import ErrorCode
from forebay.wire.messages.heartbeat import HeartbeatRequest
from forebay.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity

SIZES = (100, 300, 1_000)
HEARTBEAT, LEAVE = 3, 3


def classic_curve(scratch: Path, sizes: tuple[int, ...]) -> list[Row]:
    with ForebayServer(scratch, "classic") as broker:
        return [_measure(broker, size) for size in sizes]


def _measure(broker: ForebayServer, size: int) -> Row:
    group = f"classic-{size}"
    with ExitStack() as connections:
        with Client(broker.address) as client:
            find_coordinator(client, group)
        members = [Member(broker.address, group) for _ in range(size)]
        for member in members:
            connections.enter_context(member.client)
        row: Row = {"members": size}
        _timed(row, "all join", broker, lambda: _form(members))
        _timed(row, "all heartbeat", broker, lambda: _beat(members, ErrorCode.NONE))
        _timed(row, "one leaves", broker, lambda: _go_on_without(members))
    print(f"  {row}", flush=True)
    return row


def _timed(row: Row, name: str, broker: ForebayServer, work: Callable[[], None]) -> None:
    began_s, cpu_s, own_s = time.perf_counter(), broker.cpu_s(), time.process_time()
    work()
    row[f"{name}: s"] = time.perf_counter() - began_s
    row[f"{name}: CPU s"] = broker.cpu_s() - cpu_s
    row[f"{name}: CPU s of the clients"] = time.process_time() - own_s


def _form(members: Sequence[Member]) -> None:
    """The first is a group before the others join, and joins again with them."""
    for member in members:
        member.enter()
    rebalance(members[:1])
    rebalance(members)
    _check_generation(members)


def _check_generation(members: Sequence[Member]) -> None:
    if len({member.generation_id for member in members}) != 1:
        raise BenchError("the members are of several generations")


def _beat(members: Sequence[Member], expected: ErrorCode) -> None:
    for member in members:
        request = HeartbeatRequest(
            group_id=member.group, generation_id=member.generation_id, member_id=member.member_id
        )
        member.client.post(request, HEARTBEAT)
    answers = {ErrorCode(member.client.read().error_code) for member in members}
    if answers != {expected}:
        raise BenchError(f"heartbeats were answered with {answers}, not with {expected.name}")


def _go_on_without(members: list[Member]) -> None:
    """Until the others, who hear of it by their heartbeats, have their assignments."""
    left = members.pop()
    identity = MemberIdentity(member_id=left.member_id)
    answer = left.client.ask(LeaveGroupRequest(group_id=left.group, members=[identity]), LEAVE)
    expect_success("leaving", answer.error_code)
    _beat(members, ErrorCode.REBALANCE_IN_PROGRESS)
    rebalance(members)
    _check_generation(members)
