"""A broker with many partitions is ready before it has opened them."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from forebay.broker.partition.opening.opening_queue import OpeningQueue
from forebay.broker.partition.opening.partition_opener import PartitionOpener
from forebay.errors import ErrorCode
from forebay.storage.datadir import BOOT_ID, CLEAN_SHUTDOWN
from forebay.storage.put_aside import PutAside
from forebay.wire.messages.delete_topics import DeleteTopicsRequest
from support.brokers.broker_process import running_broker
from support.brokers.local_broker import LocalBroker, local_broker
from support.clients.wire_client import (
    LATEST,
    WireClient,
    append,
    batch,
    create,
    offset_at,
    read,
    read_all,
)
from support.waiting import Patience

TOPIC, OTHER = "many", "other"
MANY = 40
AT_ONCE = {"forebay.open.before.ready.max": "1000"}
BEHIND = {"forebay.open.before.ready.max": "0"}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A directory with a message in each of many partitions, after a clean stop."""
    with local_broker(tmp_path / "data") as local, WireClient(local.bootstrap) as client:
        create(client, OTHER)
        create(client, TOPIC, partitions=MANY)
        append(client, OTHER, batch(b"other"))
        for index in range(MANY):
            append(client, TOPIC, batch(b"%d" % index), partition=index)
    return tmp_path / "data"


class Gate:
    """Lets threads open partitions one after the other, or none."""

    def __init__(self) -> None:
        self.opened: list[str] = []
        self._allowed = threading.Semaphore(0)
        self.is_open = False

    def pass_through(self, key: str) -> None:
        if not self.is_open:
            self._allowed.acquire()
        self.opened.append(key)

    def release(self) -> None:
        self.is_open = True
        self._allowed.release(1000)


@contextmanager
def held_broker(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[LocalBroker, WireClient, Gate]]:
    """A broker that opens nothing but its own topics before the gate is released, or the test ends."""
    gate, really_open = Gate(), PartitionOpener.open

    def open_(self: PartitionOpener, image: Any, topic: Any, state: Any) -> Any:
        gate.pass_through(f"{topic.name}-{state.index}")
        return really_open(self, image, topic, state)

    monkeypatch.setattr(PartitionOpener, "open", open_)
    with local_broker(data, BEHIND) as local:
        try:
            with WireClient(local.bootstrap) as client:
                yield local, client, gate
        finally:
            local.on_loop(lambda broker: broker.assignment._queue.clear())
            gate.release()


def wait_for(what: str, condition: Callable[[], bool]) -> None:
    patience = Patience(what)
    while not condition():
        patience.check(None)


def is_refused(client: WireClient, topic: str, partition: int = 0) -> bool:
    """Whether a fetch has waited for it in vain."""
    return bool(read(client, topic, partitions=(partition,)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER)


def wait_until_all_is_open(local: LocalBroker) -> None:
    wait_for("all is open", lambda: not local.node.assignment.later.has_unchecked)


def check_all(client: WireClient) -> None:
    for index in range(MANY):
        assert read_all(client, TOPIC, partition=index) == [(0, b"%d" % index)]


def test_the_broker_is_ready_before_and_what_is_asked_for_comes_first(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with held_broker(data, monkeypatch) as (local, client, gate):
        last = MANY - 1
        assert is_refused(client, TOPIC, last)
        gate.release()
        wait_until_all_is_open(local)
        assert gate.opened.index(f"{TOPIC}-{last}") < MANY - 1
        check_all(client)
        assert sorted(gate.opened) == sorted({*gate.opened}), "each once"


def test_an_unclean_stop_is_unclean_until_all_is_checked(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (data / CLEAN_SHUTDOWN).unlink()
    with held_broker(data, monkeypatch) as (_, client, _gate):
        assert is_refused(client, TOPIC)
    assert not (data / CLEAN_SHUTDOWN).exists()
    with local_broker(data, BEHIND) as running, WireClient(running.bootstrap) as client:
        wait_until_all_is_open(running)
        check_all(client)
    assert (data / CLEAN_SHUTDOWN).exists()


def test_a_clean_stop_stays_one_for_what_was_never_opened(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with held_broker(data, monkeypatch) as (_, client, _gate):
        assert is_refused(client, TOPIC)
    assert (data / CLEAN_SHUTDOWN).exists()
    with local_broker(data) as local, WireClient(local.bootstrap) as client:
        check_all(client)
        assert local.on_loop(lambda broker: broker.partitions.get(TOPIC, 5).high_watermark) == 1


def test_a_topic_that_is_deleted_before_it_was_opened_leaves_nothing(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with held_broker(data, monkeypatch) as (local, client, gate):
        assert is_refused(client, TOPIC)
        request = DeleteTopicsRequest(topics=[], topic_names=[TOPIC], timeout_ms=30_000)
        assert client.call(request, 5).responses[0].error_code == ErrorCode.NONE
        gate.release()
        wait_until_all_is_open(local)
        wait_for("its directories are gone", lambda: not list(data.glob(f"{TOPIC}-*")))
        assert local.node.data.aside.count == 0, "nothing is kept for a person"
        assert read_all(client, OTHER) == [(0, b"other")]
        create(client, TOPIC)
        assert offset_at(client, TOPIC, LATEST) == 0


def test_a_disk_that_keeps_a_deleted_topic_holds_up_no_other(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> str:
        raise OSError(errno.EIO, "the disk refuses")

    with held_broker(data, monkeypatch) as (local, client, gate):
        assert is_refused(client, TOPIC)
        request = DeleteTopicsRequest(topics=[], topic_names=[OTHER], timeout_ms=30_000)
        assert client.call(request, 5).responses[0].error_code == ErrorCode.NONE
        monkeypatch.setattr(PutAside, "delete", refuse)
        gate.release()
        wait_until_all_is_open(local)
        wait_for("all is served", lambda: not any(is_refused(client, TOPIC, n) for n in range(MANY)))
        check_all(client)


def test_after_a_loss_of_power_all_is_opened_first(data: Path) -> None:
    (data / CLEAN_SHUTDOWN).unlink()
    (data / BOOT_ID).write_text("another boot")
    with local_broker(data, BEHIND) as local, WireClient(local.bootstrap) as client:
        assert not local.node.assignment.later.has_unchecked
        check_all(client)


def test_a_few_are_opened_first(data: Path) -> None:
    with local_broker(data, AT_ONCE) as local:
        assert not local.node.assignment.later.has_unchecked


def test_a_broker_that_is_killed_while_it_opens_loses_nothing(tmp_path: Path) -> None:
    with running_broker(tmp_path / "data", "forebay.open.before.ready.max=0") as process:
        with WireClient(process.bootstrap) as client:
            create(client, TOPIC, partitions=MANY)
            for index in range(MANY):
                append(client, TOPIC, batch(b"%d" % index), partition=index, acks=-1)
        for _ in range(3):
            process.kill()
            process.start()
        with WireClient(process.bootstrap) as client:
            for index in range(MANY):
                wait_for("it is open", lambda index=index: not is_refused(client, TOPIC, index))  # type: ignore[misc]
            check_all(client)


def test_the_queue_gives_what_is_urgent_then_the_rest() -> None:
    queue = OpeningQueue()
    queue.add_behind([("a", 0), ("a", 1), ("a", 2), ("own", 0)])
    queue.forget([("own", 0)])
    queue.add(("new", 0))
    queue.ask_for(("a", 2))
    queue.ask_for(("a", 2))
    queue.ask_for(("unknown", 0))
    taken = [queue.take() for _ in range(5)]
    assert taken == [("new", 0), ("a", 2), ("a", 0), ("a", 1), None]
    assert queue.unchecked == {("a", 0), ("a", 1), ("a", 2)}
