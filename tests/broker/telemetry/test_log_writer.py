"""Log lines never hold the broker up: they wait in a bounded queue, and repetitions are left out."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from forebay.broker.telemetry.log_format import JsonFormatter, TextFormatter
from forebay.broker.telemetry.log_writer import BURST, PER_SECOND, QueuedHandler
from forebay.errors import ErrorCode
from forebay.wire.messages.metadata import MetadataRequest
from support.brokers.broker_process import BrokerProcess, running_broker
from support.clients.wire_client import WireClient, append, batch, create

PIPE_BYTES = 4096


class Pipe:
    """A small pipe whose reader decides when to read."""

    def __init__(self) -> None:
        self.reading, self.writing = os.pipe()
        fcntl.fcntl(self.writing, fcntl.F_SETPIPE_SZ, PIPE_BYTES)

    def fill(self) -> None:
        """Leave no room for anything."""
        os.set_blocking(self.writing, False)
        try:
            while os.write(self.writing, b"." * PIPE_BYTES):
                pass
        except BlockingIOError:
            os.set_blocking(self.writing, True)

    def read_until(self, enough: Callable[[str], bool]) -> str:
        text = ""
        while not enough(text):
            chunk = os.read(self.reading, 1 << 16)
            assert chunk, f"the writer has gone; it said: {text}"
            text += chunk.decode()
        return text

    def close(self) -> None:
        for descriptor in (self.reading, self.writing):
            os.close(descriptor)


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    made = Pipe()
    yield made
    made.close()


def record(message: str, level: int = logging.INFO, **facts: object) -> logging.LogRecord:
    made = logging.LogRecord("forebay.test", level, "", 0, message, (), None)
    vars(made).update(facts)
    return made


def test_lines_come_out_in_order_and_the_last_before_the_end(pipe: Pipe) -> None:
    handler = QueuedHandler(pipe.writing, TextFormatter())
    for number in range(20):
        handler.handle(record(f"line {number};"))
    handler.close()
    handler.close()
    text = pipe.read_until(lambda text: "line 19;" in text)
    assert [int(line.split()[-1].rstrip(";")) for line in text.splitlines()] == list(range(20))


def test_who_logs_never_waits_and_what_was_dropped_is_counted(pipe: Pipe) -> None:
    pipe.fill()
    handler = QueuedHandler(pipe.writing, JsonFormatter(), queue_bytes_max=10_000)
    for number in range(1000):
        handler.handle(record("tick", number=number))
    kept: list[dict[str, object]] = []
    text = pipe.read_until(lambda text: "dropped" in text and text.endswith("\n"))
    kept = [json.loads(line) for line in text.lstrip(".").splitlines()]
    told = kept.pop()
    assert [each["number"] for each in kept] == list(range(len(kept))), "the oldest are kept"
    assert (told["message"], told["dropped"]) == (
        "log lines were dropped: nobody read them",
        1000 - len(kept),
    )
    handler.handle(record("and on"))
    assert "and on" in pipe.read_until(lambda text: text.endswith("\n"))
    handler.close()


def test_the_end_of_the_process_does_not_wait_for_ever_for_a_reader(pipe: Pipe) -> None:
    pipe.fill()
    handler = QueuedHandler(pipe.writing, TextFormatter())
    handler.handle(record("nobody will read this"))
    closing = threading.Thread(target=handler.close, daemon=True)
    closing.start()
    closing.join(60)
    assert not closing.is_alive()
    os.read(pipe.reading, 1 << 16)


def test_a_reader_that_has_gone_is_no_trouble() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    handler = QueuedHandler(writing, TextFormatter())
    handler.handle(record("to nobody"))
    handler.close()
    os.close(writing)


def test_a_line_that_cannot_be_formatted_is_told(pipe: Pipe) -> None:
    handler = QueuedHandler(pipe.writing, TextFormatter())
    handler.handle(logging.LogRecord("forebay.test", logging.INFO, "", 0, "%d apples", ("many",), None))
    handler.close()
    assert "cannot be formatted: '%d apples'" in pipe.read_until(lambda text: text.endswith("\n"))


def test_repetitions_are_left_out_and_counted(tmp_path: Path) -> None:
    seconds = 0.0
    with (tmp_path / "log").open("w") as file:
        handler = QueuedHandler(file.fileno(), JsonFormatter(), now=lambda: seconds)
        for number in range(BURST + 30):
            handler.handle(record("a client is bad", logging.WARNING, number=number))
            handler.handle(record("another kind", logging.INFO, number=number))
        handler.handle(record("a third kind", logging.ERROR))
        seconds = 1.0
        for number in range(2 * PER_SECOND):
            handler.handle(record("a client is bad", logging.WARNING, number=1000 + number))
        seconds = 100.0
        handler.close()
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    bad = [line for line in lines if line["message"] == "a client is bad"]
    numbers = [line["number"] for line in bad if "number" in line]
    assert numbers == [*range(BURST), *range(1000, 1000 + PER_SECOND)]
    assert [line["left_out"] for line in bad if "left_out" in line] == [30, PER_SECOND]
    assert sum("another" in line["message"] for line in lines) == BURST + 30, "news are no repetitions"
    assert sum("third" in line["message"] for line in lines) == 1


def test_the_audit_log_is_limited_by_principal_and_not_as_a_whole(tmp_path: Path) -> None:
    """It has decided already which lines to write: here one principal's would take the place of another's."""
    with (tmp_path / "log").open("w") as file:
        handler = QueuedHandler(file.fileno(), JsonFormatter())
        for number in range(2 * BURST):
            refusal = record("a request was refused", logging.WARNING, principal=f"User:{number}")
            refusal.name = "forebay.audit"
            handler.handle(refusal)
        handler.close()
    assert len((tmp_path / "log").read_text().splitlines()) == 2 * BURST


def test_what_was_left_out_is_told_though_nothing_follows(pipe: Pipe) -> None:
    handler = QueuedHandler(pipe.writing, JsonFormatter())
    threading.Thread(
        target=lambda: [handler.handle(record("bad", logging.WARNING)) for _ in range(BURST + 1)], daemon=True
    ).start()
    text = pipe.read_until(lambda text: '"left_out": 1' in text and text.endswith("\n"))
    assert len(text.splitlines()) == BURST + 1
    handler.close()


# -- a whole broker ----------------------------------------------------------------------------------------


def misbehave(broker: BrokerProcess, times: int) -> None:
    """Clients that say what nobody understands; each is worth a warning, and is hung up on."""
    for _ in range(times):
        with WireClient(broker.bootstrap) as client:
            client.socket.sendall(b"\x00\x00\x00\x0egarbage garbage")
            assert client.is_closed()


def test_a_log_that_nobody_reads_does_not_stop_the_broker(tmp_path: Path, pipe: Pipe) -> None:
    pipe.fill()
    with running_broker(tmp_path / "data", stderr=pipe.writing) as broker:
        misbehave(broker, 100)
        with WireClient(broker.bootstrap) as client:
            create(client, "t")
            assert append(client, "t", batch(b"value")).error_code == ErrorCode.NONE
            assert client.call(MetadataRequest(topics=[]), 9).error_code == ErrorCode.NONE
        assert broker.stop() == 0


def test_bad_clients_do_not_fill_the_log(tmp_path: Path) -> None:
    with running_broker(tmp_path / "data", "forebay.log.format=json") as broker:
        misbehave(broker, 600)
        assert broker.stop() == 0
        lines = [json.loads(line) for line in broker.log().splitlines()]
        about = [line for line in lines if "malformed" in line["message"]]
        written = [line for line in about if "client" in line or "reason" in line]
        assert len(written) < 600
        assert len(written) + sum(line.get("left_out", 0) for line in about) == 600


def test_the_log_says_who_sent_what_was_not_understood(tmp_path: Path) -> None:
    with running_broker(tmp_path / "data", "forebay.log.format=json") as broker:
        misbehave(broker, 1)
        assert broker.stop() == 0
        (line,) = [json.loads(line) for line in broker.log().splitlines() if "malformed" in line]
        assert line["principal"] == "User:ANONYMOUS"
        assert line["client"].startswith("127.0.0.1:")
