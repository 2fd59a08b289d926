"""`forebay serve` as a process: its ready line, its signals, its lock."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.brokers.broker_process import READY, BrokerProcess, StartBroker, running_broker
from support.brokers.forebay_command import forebay, forebay_process


@pytest.fixture
def fresh_broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """As a user starts it, from the interpreter on."""
    with running_broker(tmp_path / "data", forked=False) as running:
        yield running


def test_the_ready_line_names_address_node_and_data(fresh_broker: BrokerProcess) -> None:
    ready = READY.match(fresh_broker.ready_line)
    assert ready is not None
    assert ready["node"] == "1"
    assert ready["data"] == str(fresh_broker.data)
    with socket.create_connection(("127.0.0.1", fresh_broker.port), 60):
        pass


def test_settings_reach_the_broker(start_broker: StartBroker) -> None:
    started = start_broker("node.id=7", "num.partitions=5", environ={"FOREBAY_LOG_RETENTION_MS": "1000"})
    assert "(node 7, " in started.ready_line
    done = forebay("topic", "create", "t", bootstrap=started.bootstrap)
    assert done.code == 0, done.err
    described = forebay("topic", "describe", "t", "--json", bootstrap=started.bootstrap).json()
    assert len(described["partitions"]) == 5
    assert forebay("config", "get", "topic", "t", "retention.ms", bootstrap=started.bootstrap).out == "1000\n"


def test_a_settings_file(tmp_path: Path) -> None:
    file = tmp_path / "forebay.toml"
    file.write_text('listeners = "PLAINTEXT://nowhere"\n')
    done = forebay_process("serve", "--config", str(file))
    assert done.code == 2
    assert "nowhere" in done.err


def test_sigterm_and_sigint_end_it_cleanly(fresh_broker: BrokerProcess) -> None:
    assert fresh_broker.stop() == 0
    fresh_broker.start()
    assert fresh_broker.end(signal.SIGINT) == 0


def test_a_second_broker_on_the_same_data_is_refused_with_the_first_ones_pid(
    fresh_broker: BrokerProcess,
) -> None:
    done = forebay_process("serve", "--listen", "127.0.0.1:0", "--data", str(fresh_broker.data))
    assert done.code == 1
    assert str(fresh_broker.pid) in done.err
    assert "Traceback" not in done.err


def test_everything_is_still_there_after_a_kill(fresh_broker: BrokerProcess) -> None:
    text = "".join(f"{number}\n" for number in range(1000))
    produced = forebay("produce", "t", bootstrap=fresh_broker.bootstrap, stdin=text)
    assert produced.code == 0, produced.err
    fresh_broker.kill()
    fresh_broker.restart()
    consumed = forebay("consume", "t", "--exit-at-end", bootstrap=fresh_broker.bootstrap)
    assert (consumed.code, consumed.out) == (0, text)
