"""Groups whose partitions the broker assigns, by their number of members: joining, at rest, and one leaving.

Every member has a connection of its own, as members have, and all of them are in one process: its time is in
the seconds, too, and is shown beside. A group has settled when all members are in the same new epoch and the
partitions are spread as they should be. Members report again at once, until that is so: what is measured is
what broker and clients have to do. Then a second one leaves, and the others report at their heartbeat
interval, each at its own time: what a group at work needs.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, TypeVar

from bench.client import Client, expect_success
from bench.groups import find_coordinator
from bench.scale.curve import Row
from bench.scale.paced import Pace
from bench.scale.partitions import settle, timed
from bench.server import Address, BenchError, ForebayServer
from forebay.wire.fields import Request

SETTLE_S_MAX = 60.0
LEAVE_EPOCH = -1
INTERVAL_S = 0.5
"""The heartbeat interval of members at their own pace. Unless set otherwise it is five seconds."""


class Member(ABC):
    """A member with a connection of its own. Its kind says what a heartbeat is."""

    def __init__(self, address: Address, group: str, member_id: str) -> None:
        self.client = Client(address)
        self.group = group
        self.member_id = member_id
        self.epoch = 0
        self.interval_ms = 0
        """The time until the next heartbeat, by the last answer."""

    @abstractmethod
    def heartbeat(self) -> Request: ...

    @abstractmethod
    def take(self, assignment: Any) -> None: ...

    @property
    @abstractmethod
    def partitions(self) -> list[int]: ...

    def post(self) -> None:
        request = self.heartbeat()
        self.client.post(request, request.MAX_VERSION)

    def read(self) -> None:
        answer = self.client.read()
        expect_success("a heartbeat", answer.error_code)
        self.epoch = answer.member_epoch
        self.interval_ms = answer.heartbeat_interval_ms
        if answer.assignment is not None:
            self.take(answer.assignment)

    def leave(self) -> None:
        self.epoch = LEAVE_EPOCH
        self.post()
        self.read()
        self.client.close()


M = TypeVar("M", bound=Member)
IsSpread = Callable[[Sequence[M]], bool]


def measure(
    broker: ForebayServer,
    group: str,
    size: int,
    make: Callable[[Address, str], M],
    is_spread: IsSpread[M],
) -> Row:
    """`is_spread` says whether the partitions are with the members as they should be."""
    with Client(broker.address) as client:
        find_coordinator(client, group)
    with ExitStack() as connections:
        members = [make(broker.address, group) for _ in range(size)]
        for member in members:
            connections.enter_context(member.client)
        settle(broker)
        row: Row = {"members": size}
        _timed(row, "join and settle", broker, lambda: _settle(members, 0, is_spread))
        cpu_s, _ = timed(broker, lambda: _beat(members))
        row["heartbeat: CPU ms"] = 1000 * cpu_s / size
        left = members.pop(0)
        _timed(row, "one leaves, settle", broker, lambda: _go_on_without(left, members, is_spread))
        row[f"one leaves, heartbeats every {INTERVAL_S} s: s"] = _go_on_at_pace(members, is_spread)
    print(f"  {row}", flush=True)
    return row


def _timed(row: Row, name: str, broker: ForebayServer, work: Callable[[], None]) -> None:
    own_s = time.process_time()
    row[f"{name}: CPU s"], row[f"{name}: s"] = timed(broker, work)
    row[f"{name}: CPU s of the clients"] = time.process_time() - own_s


def _beat(members: Sequence[Member]) -> None:
    for member in members:
        member.post()
    for member in members:
        member.read()


def _settle(members: Sequence[M], epoch: int, is_spread: IsSpread[M]) -> None:
    """Until all are in the same epoch, beyond this one, and have the partitions that they should have."""
    deadline = time.monotonic() + SETTLE_S_MAX
    while not (_are_in_one_epoch(members, epoch) and is_spread(members)):
        if time.monotonic() > deadline:
            raise BenchError(f"a group has not settled within {SETTLE_S_MAX:.0f} s")
        _beat(members)


def _are_in_one_epoch(members: Sequence[Member], beyond: int) -> bool:
    epochs = {member.epoch for member in members}
    return len(epochs) == 1 and epochs.pop() > beyond


def _go_on_without(left: Member, members: Sequence[M], is_spread: IsSpread[M]) -> None:
    epoch = members[0].epoch
    left.leave()
    _settle(members, epoch, is_spread)


def _go_on_at_pace(members: list[M], is_spread: IsSpread[M]) -> float:
    """Seconds from the moment at which one leaves, when all others report at their pace."""
    left, epoch = members.pop(0), members[0].epoch
    pace = Pace(members)
    pace.run(lambda: True)
    began_s = time.monotonic()
    left.leave()
    pace.run(lambda: _are_in_one_epoch(members, epoch) and is_spread(members))
    took_s = time.monotonic() - began_s
    pace.end()
    return took_s
