"""Work is metered in turns: who asks for much waits in line, and strangers wait behind everybody."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from forebay.broker.net.connection import Connection
from forebay.broker.net.scheduling.turns import Line, Turns
from forebay.broker.node import Node
from forebay.broker.yielding.pauses import PausedWork
from forebay.config import broker_config
from forebay.core.security.sender_rotation import SenderRotation
from forebay.errors import ErrorCode
from forebay.wire.messages.api_versions import ApiVersionsRequest
from forebay.wire.messages.fetch import FetchRequest
from forebay.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from support.brokers.local_broker import LocalBroker, local_broker
from support.brokers.sasl_broker import log_in, sasl_broker
from support.clients.wire_client import WireClient
from support.machines.enough_cores import stranger_work
from support.waiting import SECONDS_MAX, Patience

UNKNOWN = MetadataRequest(
    topics=[MetadataRequestTopic(name=f"unknown-{number}") for number in range(100)],
    allow_auto_topic_creation=False,
)
PER_TURN = 16


class ManualLoop:
    """Turns of a loop, and time that passes as a test says."""

    def __init__(self) -> None:
        self.now = 0.0
        self.ready: deque[Callable[[], None]] = deque()

    def time(self) -> float:
        return self.now

    def call_soon(self, callback: Callable[..., None], *args: Any) -> None:
        self.ready.append(lambda: callback(*args))

    def turn(self) -> None:
        for _ in range(len(self.ready)):
            self.ready.popleft()()


def paused_line(loop: Any, budget_s: float, served_max: int) -> Line:
    return Line(
        loop, lambda serve: PausedWork(loop, loop.time, serve).begin, SenderRotation(), budget_s, served_max
    )


class Customer:
    """Takes the same time in each turn."""

    def __init__(self, loop: ManualLoop, sender: str, cost_s: float, served: list[str]) -> None:
        self._loop = loop
        self.sender = sender
        self._cost_s = cost_s
        self._served = served
        self.closed = False

    def take_turn(self, slice_s: float) -> None:
        assert slice_s > 0
        self._loop.now += self._cost_s
        self._served.append(self.sender)


@pytest.fixture
def loop() -> Any:
    return ManualLoop()


def test_senders_take_turns_however_many_connections_each_has(loop: Any) -> None:
    line, served = paused_line(loop, 1.0, served_max=100), list[str]()
    for sender in ("greedy",) * 10 + ("modest", "quiet"):
        line.add(Customer(loop, sender, 0.0, served))
    loop.turn()
    assert served[:4] == ["greedy", "modest", "quiet", "greedy"]
    assert (len(served), line.waiting) == (12, 0)


def test_a_line_has_its_time_in_each_turn_of_the_loop(loop: Any) -> None:
    line, served = paused_line(loop, 0.010, served_max=100), list[str]()
    for _ in range(10):
        line.add(Customer(loop, "greedy", 0.005, served))
    for turn in range(1, 6):
        loop.turn()
        assert len(served) == 2 * turn
    assert not loop.ready, "nothing is scheduled for an empty line"


def test_a_line_serves_so_many_in_each_turn_of_the_loop(loop: Any) -> None:
    line, served = paused_line(loop, 1.0, served_max=PER_TURN), list[str]()
    for number in range(40):
        line.add(Customer(loop, f"stranger-{number}", 0.0, served))
    counts = []
    while line.waiting:
        loop.turn()
        counts.append(len(served))
    assert counts == [PER_TURN, 2 * PER_TURN, 40]


def test_those_that_were_closed_while_they_waited_take_nobodys_turn(loop: Any) -> None:
    line, served = paused_line(loop, 1.0, served_max=PER_TURN), list[str]()
    for number in range(1000):
        customer = Customer(loop, f"stranger-{number}", 0.0, served)
        customer.closed = number < 990
        line.add(customer)
    loop.turn()
    assert (len(served), line.waiting) == (10, 0)


def test_a_debt_grows_with_what_was_taken_and_is_forgotten_with_time(loop: Any) -> None:
    turns = Turns(
        loop, loop.time, stranger_work(loop), broker_config({"forebay.connection.turn.max.ms": "2"}).socket
    )
    assert turns.debt_s(0.0, 1.0, spent_s=0.001) == 0
    debt = turns.debt_s(0.0, 1.0, spent_s=0.012)
    assert debt == pytest.approx(0.010)
    assert turns.debt_s(debt, 0.1, spent_s=0.0) == pytest.approx(0.005)
    assert turns.debt_s(debt, 1.0, spent_s=0.0) == 0
    assert turns.debt_s(debt, 0.0, spent_s=100.0) == pytest.approx(0.1)


def test_time_in_which_others_had_the_core_is_no_debt(loop: Any) -> None:
    cpu_s = 0.0
    turns = Turns(
        loop,
        lambda: cpu_s,
        stranger_work(loop),
        broker_config({"forebay.connection.turn.max.ms": "2"}).socket,
    )
    turns.mark(loop.now)
    assert turns.mark_due_s == pytest.approx(0.002)
    cpu_s = 0.003
    assert turns.spent_s(0.001) == 0.001, "no longer than its slice: that is not looked at closely"
    assert turns.spent_s(0.100) == 0.003
    cpu_s = 0.100
    assert turns.spent_s(0.050) == 0.050


def test_many_that_become_costly_at_once_make_the_rest_wait_until_the_next_turn(loop: Any) -> None:
    turns = Turns(
        loop, loop.time, stranger_work(loop), broker_config({"forebay.connection.turn.max.ms": "2"}).socket
    )
    for _ in range(3):
        turns.note_costly(0.001)
        assert not turns.crowded
    turns.note_costly(0.002)
    assert turns.crowded
    loop.turn()
    assert not turns.crowded


# -- at a broker ---------------------------------------------------------------------------------------------


def after_each_turn(
    broker: LocalBroker, send: Callable[[], None], turns: int, look: Callable[[Node], Any]
) -> list[Any]:
    """Have the loop stand still while clients send, and then see what `look` sees after each turn of it."""
    held, sent = threading.Event(), threading.Event()

    async def watch() -> list[Any]:
        held.set()
        assert sent.wait(SECONDS_MAX)
        seen = []
        for _ in range(turns):
            await asyncio.sleep(0)
            seen.append(look(broker.node))
        return seen

    future = asyncio.run_coroutine_threadsafe(watch(), broker.node.loop)
    assert held.wait(SECONDS_MAX)
    try:
        send()
    finally:
        sent.set()
    return future.result(SECONDS_MAX)


def only(node: Node, wanted: Callable[[Connection], bool]) -> Connection:
    (found,) = filter(wanted, node.server.connections)
    return found


def test_strangers_are_served_after_others_and_a_few_in_each_turn(tmp_path: Path) -> None:
    with (
        sasl_broker(tmp_path / "data") as broker,
        WireClient(broker.bootstrap) as known,
        contextlib.ExitStack() as stack,
    ):
        assert log_in(known).error_code == 0
        strangers = [stack.enter_context(WireClient(broker.bootstrap)) for _ in range(100)]
        ours = broker.on_loop(lambda node: only(node, lambda each: not each.awaits_login))
        active = ours.last_active
        asked = ApiVersionsRequest(client_software_name="stranger", client_software_version="1")

        def send() -> None:
            for stranger in strangers:
                stranger.post(asked, 3)
            known.post(MetadataRequest(topics=None), 12)

        def look(node: Node) -> tuple[bool, int]:
            answered = sum(1 for each in node.server.connections if each.software)
            return ours.last_active > active, answered

        seen = after_each_turn(broker, send, 40, look)
        assert next(answered for served, answered in seen if served) <= PER_TURN
        counts = [answered for _, answered in seen]
        assert max(after - before for before, after in pairwise(counts)) <= PER_TURN
        for stranger in strangers:
            assert stranger.read().error_code == ErrorCode.NONE
        assert known.read().brokers


def test_a_connection_with_much_to_do_lets_others_have_their_turn(tmp_path: Path) -> None:
    with (
        local_broker(tmp_path / "data") as broker,
        WireClient(broker.bootstrap) as greedy,
        WireClient(broker.bootstrap) as modest,
    ):
        greedy.call(ApiVersionsRequest(client_software_name="greedy", client_software_version="1"), 3)
        modest.call(ApiVersionsRequest(client_software_name="modest", client_software_version="1"), 3)
        of_greedy = broker.on_loop(lambda node: only(node, lambda each: each.software == "greedy 1"))
        of_modest = broker.on_loop(lambda node: only(node, lambda each: each.software == "modest 1"))
        active = of_modest.last_active
        requests = b"".join(greedy.frame(UNKNOWN, 12) for _ in range(70))

        def send() -> None:
            greedy.socket.sendall(requests)
            modest.post(MetadataRequest(topics=None), 12)

        seen = after_each_turn(
            broker, send, 10, lambda _: (of_modest.last_active > active, of_greedy.held_bytes)
        )
        assert any(served and left for served, left in seen), seen
        for _ in range(70):
            assert len(greedy.read().topics) == 100
        assert modest.read().brokers


def test_a_broker_that_replicates_is_served_while_all_others_wait(tmp_path: Path) -> None:
    with (
        local_broker(tmp_path / "data") as broker,
        WireClient(broker.bootstrap) as follower,
        WireClient(broker.bootstrap) as client,
    ):
        fetch = FetchRequest(replica_id=2, max_wait_ms=0, topics=[])
        follower.call(fetch, 12)
        client.call(ApiVersionsRequest(client_software_name="client", client_software_version="1"), 3)
        theirs = broker.on_loop(lambda node: only(node, lambda each: each.replicates))
        ours = broker.on_loop(lambda node: only(node, lambda each: not each.replicates))
        turns, active = broker.node.server.turns, (theirs.last_active, ours.last_active)

        def send() -> None:
            turns.crowded = True
            follower.post(fetch, 12)
            client.post(MetadataRequest(topics=None), 12)

        seen = after_each_turn(
            broker, send, 3, lambda _: (theirs.last_active > active[0], ours.last_active > active[1])
        )
        assert (True, False) in seen
        assert follower.read() and client.read().brokers
        turns.crowded = False


def test_requests_that_wait_for_their_turn_are_answered_in_order(tmp_path: Path) -> None:
    """Many more than one turn has time for, from several connections at once."""
    with local_broker(tmp_path / "data") as broker, contextlib.ExitStack() as stack:
        clients = [stack.enter_context(WireClient(broker.bootstrap)) for _ in range(5)]
        for client in clients:
            threading.Thread(
                target=client.socket.sendall,
                args=(b"".join(client.frame(UNKNOWN, 12) for _ in range(300)),),
                daemon=True,
            ).start()
        for _ in range(300):
            for client in clients:
                assert len(client.read().topics) == 100
        patience = Patience("what was answered takes no memory any more")
        while broker.on_loop(lambda node: node.server.memory.used_bytes):
            patience.check()


def _accepted_and_open(node: Node) -> tuple[int, int]:
    return node.metrics.connections_accepted, node.server.connection_count


def test_a_client_that_goes_while_it_waits_in_line_is_forgotten(tmp_path: Path) -> None:
    with local_broker(tmp_path / "data") as broker:
        for _ in range(20):
            with WireClient(broker.bootstrap) as client:
                client.socket.sendall(b"".join(client.frame(UNKNOWN, 12) for _ in range(70)))
        patience = Patience("all have come, and are gone")
        while (seen := broker.on_loop(_accepted_and_open)) != (20, 0):
            patience.check(seen)
        server = broker.node.server
        assert broker.on_loop(lambda _: (server.turns.indebted.waiting, server.memory.used_bytes)) == (0, 0)


def test_a_stranger_that_has_logged_in_waits_in_no_line(tmp_path: Path) -> None:
    with sasl_broker(tmp_path / "data") as broker, WireClient(broker.bootstrap) as client:
        assert log_in(client).error_code == 0
        (ours,) = broker.on_loop(lambda node: list(node.server.connections))
        assert (ours.sender, ours.awaits_login) == ("User:ada", False)
        active = ours.last_active
        seen = after_each_turn(
            broker,
            lambda: client.post(MetadataRequest(topics=None), 12),
            3,
            lambda _: ours.last_active > active,
        )
        assert seen[1], "what came is looked at behind what was scheduled, and served at once"
        assert client.read().brokers
