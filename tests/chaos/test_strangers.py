"""Ten thousand connections that say nothing, little, or too much before they have shown who they are.

What they cost is bounded, and everybody else is served: on another listener, and on theirs. The figures in
docs/security.md are what this prints (`make chaos ARGS="-k strangers -s"`).
"""

from __future__ import annotations

import os
import resource
import ssl
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rich.console import Console

from forebay.wire.messages.api_versions import ApiVersionsRequest
from support.brokers.local_broker import LocalBroker, local_broker
from support.brokers.sasl_broker import BROKER_PASSWORD, add_users, log_in
from support.brokers.tls_files import TlsFiles
from support.clients.wire_client import WireClient
from support.faults.strangers import Behaviour, giant, giant_record, silent, slow, slow_handshake, strangers
from support.waiting import Patience

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(600)]

COUNT = int(os.environ.get("CHAOS_STRANGERS", "10000"))
UNFINISHED_MAX = 1000
MB = 1 << 20
GROWTH_MB_MAX = 160
"""A thousand unfinished handshakes take about 75 MiB. Ten thousand would take more than 400."""


@pytest.fixture(autouse=True)
def many_files() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def resident_bytes() -> int:
    (line,) = [
        line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS:")
    ]
    return int(line.split()[1]) * 1024


def listening(protocol: str, directory: Path, tls: TlsFiles) -> dict[str, str]:
    """A listener for strangers, and a plain one for others."""
    add_users({"log.dirs": str(directory)})
    return tls.broker_settings() | {
        "listeners": f"PLAINTEXT://127.0.0.1:0,{protocol}://127.0.0.1:0",
        "forebay.sasl.username": "broker",
        "forebay.sasl.password": BROKER_PASSWORD,
        "forebay.max.unauthenticated.connections": str(UNFINISHED_MAX),
        "forebay.authentication.timeout.ms": "10000",
        "forebay.ssl.handshake.timeout.ms": "10000",
    }


def come_in(protocol: str, address: tuple[str, int], tls: TlsFiles) -> None:
    """What a client that is welcome does on the listener of the strangers, from another address."""
    context = None if protocol == "SASL_PLAINTEXT" else ssl.create_default_context(cafile=tls.ca)
    with WireClient("{}:{}".format(*address), tls=context, source="127.0.0.2") as client:
        if protocol != "SSL":
            assert log_in(client).error_code == 0
        assert client.call(ApiVersionsRequest(), 3).error_code == 0


def comes_in(protocol: str, address: tuple[str, int], tls: TlsFiles) -> bool:
    try:
        come_in(protocol, address, tls)
    except ConnectionError:
        return False
    return True


@pytest.mark.parametrize(
    ("protocol", "behaviour"),
    [
        ("SASL_PLAINTEXT", silent),
        ("SASL_PLAINTEXT", slow),
        ("SASL_PLAINTEXT", giant),
        ("SSL", silent),
        ("SSL", slow_handshake),
        ("SSL", giant_record),
        ("SASL_SSL", slow_handshake),
    ],
)
def test_strangers_cost_little_and_keep_nobody_out(
    tmp_path: Path, protocol: str, behaviour: Behaviour
) -> None:
    tls = TlsFiles(tmp_path)
    settings = listening(protocol, tmp_path / "data", tls)
    with local_broker(tmp_path / "data", settings) as broker:
        addresses = broker.on_loop(lambda node: node.server.addresses)
        plain, theirs = "{}:{}".format(*addresses["PLAINTEXT"]), addresses[protocol]
        with WireClient(plain) as other:
            come_in(protocol, theirs, tls)
            before, quiet = resident_bytes(), waits(other, 10_000)
            with strangers(theirs, COUNT, behaviour) as have_come:
                most, busy, entries = besieged(broker, other, protocol, theirs, tls, have_come)
            ended(broker)
    grown = (most - before) / MB
    Console().print(
        f"{COUNT:,} x {behaviour.__name__} on {protocol}: {grown:.1f} MiB more; requests of others "
        f"{_ms(quiet)} before, {_ms(busy)} meanwhile; coming in took {_ms(entries)}",
        soft_wrap=True,
    )
    assert grown < GROWTH_MB_MAX


def waits(client: WireClient, count: int = 100) -> list[float]:
    """How long some requests took."""
    found = []
    for _ in range(count):
        began = time.perf_counter()
        assert client.call(ApiVersionsRequest(), 3).error_code == 0
        found.append(time.perf_counter() - began)
    return found


def besieged(
    broker: LocalBroker,
    other: WireClient,
    protocol: str,
    address: tuple[str, int],
    tls: TlsFiles,
    have_come: Callable[[], bool],
) -> tuple[int, list[float], list[float]]:
    """The most memory, how long requests of others took, and how long it took to come in."""
    most, busy, entries = 0, list[float](), list[float]()
    patience = Patience("all strangers have come")
    while not (have_come() and len(entries) >= 10):
        patience.check(len(entries))
        busy += waits(other)
        began = time.perf_counter()
        while not comes_in(protocol, address, tls):
            patience.check("a client was not let in in time, as on a machine with no time for it")
        entries.append(time.perf_counter() - began)
        most = max(most, resident_bytes())
        assert broker.on_loop(lambda node: node.logins.unfinished) <= UNFINISHED_MAX
    return most, busy, entries


def ended(broker: LocalBroker) -> None:
    patience = Patience("the connections of strangers are closed")
    while broker.on_loop(lambda node: node.logins.unfinished):
        patience.check(broker.on_loop(lambda node: node.server.connection_count))


def _ms(seconds: list[float]) -> str:
    tail = sorted(seconds)[-len(seconds) // 100 :][0]
    return (
        f"{statistics.median(seconds) * 1000:.1f} ms (1 % above {tail * 1000:.0f}, "
        f"slowest {max(seconds) * 1000:.0f}, of {len(seconds):,})"
    )
