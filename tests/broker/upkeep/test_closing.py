"""A broker that stops closes everything, also when one of its parts cannot be closed."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from support.brokers.local_broker import local_broker
from support.clients.wire_client import LATEST, WireClient, append, batch, create, offset_at


def test_a_part_that_cannot_be_closed_keeps_no_other_from_closing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mistaken() -> None:
        raise RuntimeError("not foreseen")

    others = set(threading.enumerate())  # of brokers that other tests share
    with local_broker(tmp_path) as broker, WireClient(broker.bootstrap) as client:
        create(client, "t")
        append(client, "t", batch(b"a"))
        node = broker.node
        monkeypatch.setattr(node.peers, "close", mistaken)
    assert node.partitions.held("t", 0).closed
    left = set(threading.enumerate()) - others
    assert not [each.name for each in left if each.name.startswith("forebay-")]
    with local_broker(tmp_path) as broker, WireClient(broker.bootstrap) as client:
        assert offset_at(client, "t", LATEST) == 1
