"""Two processes with the same node id and the same data directory, because one was copied."""

from __future__ import annotations

import json
import shutil
import subprocess
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from forebay.errors import ErrorCode
from forebay.local.etcd import EtcdCluster
from support.brokers.broker_process import BrokerProcess, running_broker
from support.brokers.forebay_command import command, environment, forebay_process
from support.clients.wire_client import WireClient, append, batch, create
from support.waiting import Patience

Serve = Callable[..., AbstractContextManager[BrokerProcess]]
LEASE = "forebay.lease.ttl.ms=6000"


@pytest.fixture(scope="module")
def etcd() -> Iterator[EtcdCluster]:
    with EtcdCluster(1) as running:
        yield running


@pytest.fixture
def serve(etcd: EtcdCluster, tmp_path: Path, request: pytest.FixtureRequest) -> Serve:
    cluster = f"forebay.cluster={etcd.url(request.node.name)}"
    return lambda name: running_broker(tmp_path / name, cluster, "node.id=5", LEASE)


def copied(broker: BrokerProcess) -> Path:
    """Its directory, as a backup of a running broker has it."""
    copy = broker.data.with_name("copy")
    shutil.copytree(broker.data, copy, ignore=shutil.ignore_patterns(".lock"))
    return copy


def test_the_second_of_two_processes_with_the_same_directory_id_gives_up(
    serve: Serve, etcd: EtcdCluster, request: pytest.FixtureRequest
) -> None:
    with serve("a") as first:
        with WireClient(first.bootstrap) as client:
            create(client, "t")
        url = etcd.url(request.node.name)
        copy = str(copied(first))
        settings = ("--set", LEASE, "--listen", "127.0.0.1:0")
        second = forebay_process("serve", "--cluster", url, "--node-id", "5", "--data", copy, *settings)
        assert second.code != 0
        assert "the data directory was copied" in second.err
        assert first.bootstrap in second.err
        assert "Traceback" not in second.err
        with WireClient(first.bootstrap) as client:
            assert append(client, "t", batch(b"v")).error_code == ErrorCode.NONE
        assert "joins again" not in first.log(), "it was disturbed"


def test_a_broker_that_waits_for_a_lease_stops_when_it_is_told_to(
    serve: Serve, etcd: EtcdCluster, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    with serve("a") as first, (tmp_path / "log").open("wb") as stderr:
        place = ("--cluster", etcd.url(request.node.name), "--data", str(copied(first)))
        # Longer than the test may take: it does not end by itself.
        lease = ("--set", "forebay.lease.ttl.ms=60000")
        serving = command("serve", *place, "--node-id", "5", "--listen", "127.0.0.1:0", *lease)
        second = subprocess.Popen(serving, stdout=subprocess.DEVNULL, stderr=stderr, env=environment())
        try:
            patience = Patience("the second broker waits")
            while "waiting for a lease" not in (text := (tmp_path / "log").read_text()):
                patience.check(text)
            second.terminate()
            assert second.wait(50) == 0
        finally:
            second.kill()
            second.wait()


def test_a_broker_that_was_killed_is_replaced_at_once(serve: Serve) -> None:
    with serve("a") as broker:
        for _ in range(2):
            broker.kill()
            broker.start()
        assert "waiting for a lease" not in broker.log()


def test_so_is_one_that_comes_back_at_another_address(serve: Serve) -> None:
    with serve("a") as broker:
        broker.kill()
        with serve("a") as again:
            assert again.port != broker.port
            assert "waiting for a lease" not in again.log()


def test_a_process_that_runs_leaves_the_registration_of_another_alone(
    serve: Serve, etcd: EtcdCluster, request: pytest.FixtureRequest
) -> None:
    """Another process with this directory has registered since: its lease has to end first."""
    with serve("a") as first:
        server = etcd.servers[0]
        key = b64encode(f"/forebay/{request.node.name}/brokers/5".encode()).decode()
        other = json.loads(b64decode(server.ask("/v3/kv/range", {"key": key})["kvs"][0]["value"]))
        value = b64encode(json.dumps(other | {"process": "other"}).encode()).decode()
        lease = server.ask("/v3/lease/grant", {"TTL": "4"})["ID"]
        # The same key in one revision: what is registered now was created later.
        server.ask("/v3/kv/deleterange", {"key": key})
        absent = {"key": key, "target": "CREATE", "result": "EQUAL", "create_revision": "0"}
        put = {"request_put": {"key": key, "value": value, "lease": lease}}
        patience = Patience("the other process is registered")
        while not server.ask("/v3/kv/txn", {"compare": [absent], "success": [put]}).get("succeeded"):
            server.ask("/v3/kv/deleterange", {"key": key})
            patience.check()
        patience = Patience("it sees the other, and joins again when that is gone")
        while "the data directory was copied" not in first.log():
            patience.check(first.log())
        while first.log().rfind("joined the cluster again") < first.log().rfind("was copied"):
            patience.check(first.log())
