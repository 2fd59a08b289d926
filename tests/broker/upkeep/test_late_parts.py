"""Parts of a broker that are made late: while it stops, and where that fails at first."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from forebay import lazy
from forebay.broker.composition import coordinators
from forebay.broker.node import Node
from forebay.errors import KafkaError
from forebay.local.settings import TEST_SETTINGS
from forebay.testing.embedded import BrokerThread
from forebay.wire.api_keys import ApiKey
from forebay.wire.messages.find_coordinator import FindCoordinatorRequest
from support.brokers.local_broker import local_broker
from support.clients.wire_client import WireClient
from support.waiting import Patience


def test_a_part_that_is_first_asked_for_while_the_broker_stops_is_not_made(tmp_path: Path) -> None:
    """Nobody would end it, and the broker would wait for it."""
    broker = BrokerThread()
    broker.start({**TEST_SETTINGS, "log.dirs": str(tmp_path), "listeners": "PLAINTEXT://127.0.0.1:0"})
    node = broker.node
    end_services, refused = node.end_services, asyncio.Event()

    def ask() -> None:
        with pytest.raises(KafkaError, match="is stopping"):
            node._dispatcher.open(ApiKey.SHARE_FETCH)
        refused.set()

    def end_and_be_asked() -> None:
        end_services()
        ask()

    node.end_services = end_and_be_asked  # type: ignore[method-assign]
    broker.stop()
    assert refused.is_set() and not node.has("_shares")


def test_a_coordinator_that_cannot_be_made_at_first_is_made_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = [OSError(24, "Too many open files")] * 2

    def failing(reference: str) -> Any:
        if reference.endswith(":Groups") and failures:
            raise failures.pop()
        return lazy.load(reference)

    monkeypatch.setattr(coordinators, "load", failing)
    with local_broker(tmp_path) as broker:
        request = FindCoordinatorRequest(key_type=0, coordinator_keys=["group"])
        patience = Patience("there is a coordinator")
        while True:
            try:
                with WireClient(broker.bootstrap) as client:
                    code = client.call(request, 4).coordinators[0].error_code
            except ConnectionError as error:
                patience.check(error)
                continue
            if code == 0:
                break
            patience.check(code)
        assert not failures

        def made(node: Node) -> bool:
            return "groups" in vars(node.coordinators)

        patience = Patience("it is made")
        while not broker.on_loop(made):
            patience.check()
