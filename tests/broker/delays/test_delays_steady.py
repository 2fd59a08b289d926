"""Messages come to be delivered while others are scheduled without a pause."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from forebay.broker.delays import following
from support.brokers.local_broker import LocalBroker, local_broker
from support.clients.delaying import after, at, delivered, eventually, named, now_ms, pending, send, values
from support.clients.wire_client import WireClient, create
from support.waiting import Patience

PAUSE_S = 0.5
"""Far longer than a client needs to send a message: the index never is at the end of the log."""


@pytest.fixture
def broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalBroker]:
    monkeypatch.setattr(following, "_LEADER_PAUSE_S", PAUSE_S)
    with local_broker(tmp_path) as broker:
        yield broker


@pytest.fixture
def client(broker: LocalBroker) -> Iterator[WireClient]:
    with WireClient(broker.bootstrap) as client:
        create(client, "t", 1, forebay_delay_enable="true")
        yield client


def test_what_is_due_is_delivered_while_messages_are_scheduled(
    broker: LocalBroker, client: WireClient
) -> None:
    send(client, "t", b"due", at(now_ms() + 200))
    patience = Patience("the message is delivered")
    while not broker.on_loop(lambda node: node.metrics.delayed_fired):
        patience.check()
        send(client, "t", b"far", after("1h"))
    assert values(client, "t") == [b"due"]


def test_what_is_due_sooner_is_delivered_sooner_although_it_came_late(client: WireClient) -> None:
    """What came before its time, that is, by the clock of the broker."""
    dice = Random(1)
    sent = 300
    for _ in range(sent):
        send(client, "t", b"v", at(now_ms() + dice.randrange(20, 400)))
    eventually(lambda: pending(client, "t") == 0, "something still waits")
    came = [(message.timestamp, dict(message.headers)) for message in delivered(client, "t")]
    assert len(came) == sent
    in_time = [
        (due_ms, int((headers["forebay-schedule-id"] or b"").split(b"-")[1]))
        for due_ms, headers in came
        if int(headers["forebay-scheduled-at"] or 0) < due_ms
    ]
    assert in_time == sorted(in_time)
    assert in_time


@pytest.mark.parametrize("value", [None, b"instead"])
def test_what_was_ended_shortly_before_its_time_is_not_delivered(
    client: WireClient, value: bytes | None
) -> None:
    """When it is due, the index does not know of that yet."""
    first_ms = now_ms() + 1_000
    due = {b"%d" % number: first_ms + 10 * number for number in range(100)}
    for name, due_ms in due.items():
        send(client, "t", name, at(due_ms, schedule_key=name.decode()))
    ended = set()
    for name, due_ms in due.items():
        while now_ms() < due_ms - 30:
            send(client, "t", b"far", after("1h"))
        when = [] if value is None else after("1h")
        send(client, "t", value, [*when, *named(schedule_key=name.decode())])
        if now_ms() < due_ms:
            ended.add(name)
    last = send(client, "t", b"last", at(now_ms()))
    eventually(lambda: b"last" in values(client, "t"), f"message {last} was not delivered")
    assert not ended & set(values(client, "t"))
