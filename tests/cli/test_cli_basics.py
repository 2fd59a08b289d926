"""Help, errors and exit codes: everything that needs no broker."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from forebay import __version__
from forebay.cli import client
from forebay.local.ports import ReservedPort
from support.brokers.forebay_command import command, environment, forebay, forebay_process


def test_version() -> None:
    assert forebay_process("--version").out == f"forebay {__version__}\n"


def test_help_names_every_verb() -> None:
    out = forebay("--help").out
    for verb in ("serve", "topic", "produce", "consume", "config", "log"):
        assert f"\n  {verb} " in out


@pytest.fixture
def unused_address() -> Iterator[str]:
    """An address where nobody listens, and nobody will."""
    with contextlib.closing(ReservedPort()) as nobody:
        yield f"127.0.0.1:{nobody.number}"


@pytest.mark.parametrize(
    "arguments", [("topic", "list"), ("produce", "t"), ("consume", "t"), ("config", "get", "topic", "t")]
)
def test_nobody_there(arguments: tuple[str, ...], unused_address: str) -> None:
    done = forebay(*arguments, "-b", unused_address)
    assert done.code == 1
    assert done.err.count("\n") == 1
    assert f"no broker answers at {unused_address}" in done.err
    assert "forebay serve" in done.err


def test_what_is_no_name_of_a_host() -> None:
    done = forebay("topic", "list", "-b", "a..b:9092")
    assert done.code == 1
    assert done.err.count("\n") == 1
    assert "'a..b' is no name of a host" in done.err


@pytest.fixture
def impostor() -> Iterator[str]:
    """An address where something listens that hangs up on everyone."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def hang_up() -> None:
            with contextlib.suppress(OSError):
                while True:
                    server.accept()[0].close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
        thread.join()


@pytest.mark.parametrize("arguments", [("topic", "list"), ("produce", "t"), ("consume", "t")], ids=" ".join)
def test_somebody_else_there(
    impostor: str, arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "METADATA_SECONDS", 0.3)
    done = forebay(*arguments, "-b", impostor, stdin="x\n")
    assert done.code == 1
    assert f"something listens at {impostor} but does not answer as a Kafka broker" in done.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("bogus",),
        ("topic", "create"),
        ("topic", "create", "t", "--partitions", "0"),
        ("topic", "create", "t", "--config", "no-equals-sign"),
        ("topic", "alter", "t"),
        ("topic", "delete", "t"),
        ("config", "set", "topic", "t"),
        ("config", "get", "planet", "earth"),
        ("produce", "t", "--key", "k", "--key-separator", ":"),
        ("produce", "t", "--compression", "rar"),
        ("consume", "t", "--from", "yesterday"),
        ("consume", "t", "--format", "%q"),
        ("consume", "t", "--json", "--format", "%v"),
        ("topic", "list", "-b", "host:port"),
        ("serve", "--set", "log.retenion.ms=1"),
        ("serve", "--set", "num.partitions=many"),
        ("serve", "--config", "no-such-file.toml"),
        ("serve", "--listen", "nowhere"),
    ],
    ids=" ".join,
)
def test_asked_wrongly(arguments: tuple[str, ...]) -> None:
    done = forebay(*arguments)
    assert done.code == 2
    assert done.err.strip()
    assert "Traceback" not in done.err
    assert not done.out


def test_an_unknown_setting_is_told_the_nearest_name() -> None:
    assert "log.retention.ms" in forebay("serve", "--set", "log.retenion.ms=1").err


def test_a_port_in_use_is_one_line(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = forebay_process("serve", "--listen", address, "--data", str(tmp_path / "data"))
    assert done.code == 1
    assert "Traceback" not in done.err
    assert done.err.splitlines()[-1].startswith("forebay: ")


def test_serve_imports_neither_the_client_library_nor_the_table_printer() -> None:
    script = (
        "import sys; import forebay.cli.main, forebay.cli.serve, forebay.broker.process;"
        "print([m for m in ('confluent_kafka', 'rich', 'tomllib', 'sqlglot') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout.strip() == "[]", done.stderr


def test_a_reader_that_went_away_is_no_error(tmp_path: Path) -> None:
    """Help is as good as any output: what matters is the closed pipe."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            command("--help"),
            stdout=writer,
            stderr=subprocess.PIPE,
            env=environment(),
            timeout=120,
            check=False,
        )
    finally:
        os.close(writer)
    assert done.returncode == 0
    assert done.stderr == b""
