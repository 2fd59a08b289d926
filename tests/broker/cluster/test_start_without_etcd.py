"""A broker that is started while etcd is away waits for it, for a while."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from forebay.local.etcd import EtcdCluster
from support.brokers.broker_process import BrokerProcess
from support.brokers.forebay_command import command, environment, forebay_process
from support.waiting import Patience

WAITS = "waiting for the store"
TIMEOUT = "initial.broker.registration.timeout.ms"


@pytest.fixture
def etcd() -> Iterator[EtcdCluster]:
    with EtcdCluster(1) as running:
        yield running


def until_waiting(log: Path) -> None:
    patience = Patience("the broker waits")
    while not log.exists() or WAITS not in log.read_text():
        patience.check(log.read_text() if log.exists() else "")


def test_it_serves_when_etcd_has_come(etcd: EtcdCluster, tmp_path: Path) -> None:
    etcd.servers[0].kill()
    broker = BrokerProcess(tmp_path / "data", f"forebay.cluster={etcd.url('late')}", "node.id=1")
    try:
        with ThreadPoolExecutor(1) as pool:
            started = pool.submit(broker.start)
            until_waiting(broker.log_path)
            etcd.restart(0)
            started.result()
        assert "start etcd, or correct forebay.cluster" in broker.log(), "the reason is logged"
    finally:
        broker.close()


def test_it_gives_up_after_a_while(etcd: EtcdCluster, tmp_path: Path) -> None:
    etcd.servers[0].kill()
    serve = ("serve", "--cluster", etcd.url("late"), "--data", str(tmp_path / "data"))
    done = forebay_process(*serve, "--set", f"{TIMEOUT}=1000")
    assert done.code != 0
    assert "no etcd server answers" in done.err.splitlines()[-1]
    assert "Traceback" not in done.err


def test_it_stops_when_it_is_told_to_meanwhile(etcd: EtcdCluster, tmp_path: Path) -> None:
    etcd.servers[0].kill()
    log = tmp_path / "log"
    with log.open("wb") as stderr:
        serve = command("serve", "--cluster", etcd.url("late"), "--data", str(tmp_path / "data"))
        broker = subprocess.Popen(serve, stdout=subprocess.DEVNULL, stderr=stderr, env=environment())
        try:
            until_waiting(log)
            broker.terminate()
            assert broker.wait(60) == 0
        finally:
            broker.kill()
            broker.wait()


@pytest.mark.parametrize("is_tls", [False, True])
def test_what_no_waiting_mends_ends_it_at_once(etcd: EtcdCluster, tmp_path: Path, is_tls: bool) -> None:
    """TLS where etcd has none, and a user that etcd does not know."""
    url = etcd.url("late")
    settings = ["forebay.etcd.user=nobody", "forebay.etcd.password=wrong"]
    if is_tls:
        url, settings = url.replace("etcd://", "etcds://"), []
    else:
        server = etcd.servers[0]
        for path, body in (
            ("user/add", {"name": "root", "password": "x"}),
            ("user/grant", {"user": "root", "role": "root"}),
            ("enable", {}),
        ):
            server.ask(f"/v3/auth/{path}", body)
    given = [text for setting in settings for text in ("--set", setting)]
    done = forebay_process("serve", "--cluster", url, "--data", str(tmp_path / "data"), *given)
    assert done.code != 0
    assert WAITS not in done.err
    assert ("write etcd:// for etcds://" if is_tls else "forebay.etcd.password") in done.err
