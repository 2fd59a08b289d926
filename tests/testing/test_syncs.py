"""What a broker of `forebay.testing` forces to disk: nothing, unless its data is kept."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from forebay.storage import real_disk
from forebay.testing import Broker
from support.clients.wire_client import WireClient, append, batch, create

ACKS_ALL = -1


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The calls that force something to disk, in this process."""
    calls: list[str] = []

    def noted(name: str, call: Callable[..., None]) -> Callable[..., None]:
        def note(what: object) -> None:
            calls.append(name)
            call(what)

        return note

    for name in ("sync_data", "sync_file", "sync_directory"):
        monkeypatch.setattr(real_disk, name, noted(name, getattr(real_disk, name)))
    return calls


def use(broker: Broker) -> None:
    with broker, WireClient(broker.bootstrap_servers) as client:
        create(client, "t")
        assert not append(client, "t", batch(b"v"), acks=ACKS_ALL).error_code


def test_nothing_is_forced_to_disk_in_a_temporary_directory(synced: list[str]) -> None:
    use(Broker())
    assert not synced


def test_data_that_is_kept_is_forced_to_disk(synced: list[str], tmp_path: Path) -> None:
    use(Broker(data_dir=tmp_path))
    assert {"sync_data", "sync_file", "sync_directory"} <= set(synced)


def test_a_policy_of_ones_own_wins(synced: list[str]) -> None:
    use(Broker(settings={"forebay.flush.policy": "ack"}))
    assert "sync_data" in synced
