"""A topic goes from 12 to 4 to 8 partitions while clients of Java and Go produce and consume.

Producers name partitions or hash keys, in transactions too. Those that hash go on when the closed partitions
are gone, with the count that they know or with the one that they learn. Groups read everything.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from support.brokers.broker_process import BrokerProcess, StartBroker
from support.brokers.replicated import until
from support.clients.delaying import after, batch_of
from support.clients.kafka_clients import create_topic
from support.clients.view_calls import document, documents, make_view
from support.clients.wire_client import WireClient, append, create
from support.compat.asked_program import AskedProgram
from support.compat.folding import (
    Stored,
    check,
    check_complete,
    delete_closed,
    is_read,
    set_partitions,
    stored,
)
from support.go import franz_go
from support.java import steady_clients

pytestmark = [pytest.mark.compat, pytest.mark.timeout(600)]

BEFORE, AFTER, BETWEEN = 12, 4, 8
ENOUGH = 60
"""Messages after which a producer has been everywhere several times."""
SETTINGS = ("forebay.fold.grace.ms=0", "log.retention.check.interval.ms=200")


class Clients(NamedTuple):
    program: AskedProgram
    broker: BrokerProcess
    protocols: tuple[str, ...]
    """Of groups."""
    keeps_batches: bool
    """Whether producers keep messages for partitions that are gone while they look for a broker."""
    named: tuple[str, ...] = ("named", "named,transactional")
    keyed: tuple[str, ...] = ("keyed", "keyed,transactional", "keyed,cached")


@pytest.fixture(params=["java", "go"])
def clients(request: pytest.FixtureRequest, start_broker: StartBroker, tmp_path: Path) -> Iterator[Clients]:
    is_java = request.param == "java"
    if reason := steady_clients.why_not() if is_java else franz_go.why_not():
        pytest.skip(reason)
    broker = start_broker(*SETTINGS)
    with (steady_clients if is_java else franz_go).start(broker.bootstrap, tmp_path) as program:
        yield Clients(
            program, broker, ("classic", "consumer") if is_java else ("classic",), keeps_batches=is_java
        )


def has_reached(program: AskedProgram, name: str, count: int) -> bool:
    acknowledged: int = program.ask("acknowledged", name)
    return acknowledged >= count


def reach(program: AskedProgram, producers: list[str], count: int = ENOUGH) -> None:
    """Wait until each has that many more messages acknowledged; raises the error of one that has failed."""
    wanted = {name: program.ask("acknowledged", name) + count for name in producers}
    for name, number in wanted.items():
        until(partial(has_reached, program, name, number), f"{name} goes on")


class Running(NamedTuple):
    """Producers of every kind, and members of groups."""

    named: list[str]
    keyed: list[str]
    members: dict[str, list[str]]
    """By group."""

    @property
    def producers(self) -> list[str]:
        return self.named + self.keyed


def start(clients: Clients, topic: str) -> Running:
    """They know all partitions, and have used them."""
    create_topic(clients.broker.bootstrap, topic, BEFORE)
    ask = clients.program.ask
    running = Running(
        named=[kind.replace(",", "-") for kind in clients.named],
        keyed=[kind.replace(",", "-") for kind in clients.keyed],
        members={f"{topic}-{protocol}": [] for protocol in clients.protocols},
    )
    for name, kind in zip(running.producers, (*clients.named, *clients.keyed), strict=True):
        ask("produce", name, topic, kind)
    for protocol, (group, members) in zip(clients.protocols, running.members.items(), strict=True):
        for number in (1, 2):
            members.append(f"{group}-{number}")
            ask("join", members[-1], topic, group, protocol)
    reach(clients.program, running.producers)
    return running


def check_groups(clients: Clients, topic: str, running: Running, *parts: Stored) -> None:
    """Each group has read all of these, and nothing else."""
    everything = {value for part in parts for each in part.values() for value in each.values()}
    for group, members in running.members.items():
        until(
            partial(is_read, clients.broker.bootstrap, topic, group, parts[-1]), f"{group} reads everything"
        )
        assert {value for member in members for value in clients.program.ask("leave", member)} == everything


@pytest.mark.parametrize("killed", [False, True])
def test_clients_go_on_while_partitions_close_and_go(clients: Clients, topic: str, killed: bool) -> None:
    if killed and not clients.keeps_batches:
        pytest.skip("franz-go gives up what it holds for partitions that are not in the metadata")
    program, bootstrap = clients.program, clients.broker.bootstrap
    running = start(clients, topic)
    set_partitions(bootstrap, topic, AFTER)
    reach(program, running.producers)
    # Whoever names a partition that does not exist any more is refused by its own client.
    acknowledged = {name: program.ask("finish", name) for name in running.named}
    closed = stored(bootstrap, topic, range(AFTER, BEFORE))
    for group in running.members:
        until(partial(is_read, bootstrap, topic, group, closed), f"{group} reads what is closed")
    until(lambda: delete_closed(bootstrap, topic, AFTER), "the closed partitions go")
    reach(program, running.keyed)
    if killed:
        clients.broker.kill()
        clients.broker.start()
        reach(program, running.keyed)
    acknowledged |= {name: program.ask("finish", name) for name in running.keyed}
    found = stored(bootstrap, topic, range(AFTER))
    check(acknowledged, {**closed, **found}, AFTER, reconnected=killed)
    check_groups(clients, topic, running, closed, found)


def test_clients_go_on_while_partitions_close_and_open(clients: Clients, topic: str) -> None:
    """From 12 to 4 to 8: partitions 4 to 7 take messages again."""
    program, bootstrap = clients.program, clients.broker.bootstrap
    running = start(clients, topic)
    for count in (AFTER, BETWEEN):
        set_partitions(bootstrap, topic, count)
        reach(program, running.producers)
    acknowledged = {name: program.ask("finish", name) for name in running.producers}
    found = stored(bootstrap, topic, range(BEFORE))
    check_complete(acknowledged, found)
    check_groups(clients, topic, running, found)


def test_a_view_of_a_topic_with_messages_for_later(clients: Clients, topic: str) -> None:
    """A group reads the view and another the topic; and who seeks by time finds in the view what a filter on
    the topic would find, at the same offsets."""
    program, view = clients.program, f"{topic}-some"
    with WireClient(clients.broker.bootstrap) as client:
        create(client, topic, forebay_delay_enable="true", retention_ms="-1")
        make_view(client, view, topic, "value.id >= 50")
        for first in range(0, 100, 10):
            some = documents(range(first, first + 10), timestamp=1_000 + first)
            assert append(client, topic, some).error_code == 0
        program.ask("join", "topic", topic, f"{topic}-group", "classic")
        program.ask("join", "view", view, f"{view}-group", "classic")
        later = batch_of(*((document(number), after("700ms")) for number in (7, 77, 177)))
        assert append(client, topic, later, acks=-1).error_code == 0
    expected = sorted(document(number).decode() for number in (*range(100), 7, 77, 177))
    shown = sorted(document(number).decode() for number in (*range(50, 100), 77, 177))
    until(lambda: program.ask("read", "topic") >= len(expected), "the topic is read")
    until(lambda: program.ask("read", "view") >= len(shown), "the view is read")
    assert sorted(program.ask("leave", "topic")) == expected
    assert sorted(program.ask("leave", "view")) == shown
    for timestamp, left_out in ((0, 0), (1_080, 80)):
        whole = program.ask("take", topic, timestamp, len(expected) - left_out)
        part = program.ask("take", view, timestamp, len(shown) - max(left_out - 50, 0))
        assert [each for each in whole if each[2] in shown] == part
        assert len(whole) == len(expected) - left_out
