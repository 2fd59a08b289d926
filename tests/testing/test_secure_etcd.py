"""The etcd of a secure cluster is for its brokers: nobody else on the machine gets in."""

from __future__ import annotations

import ssl
import stat
import urllib.request
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest

from forebay.errors import ConfigError
from forebay.local.certificates import Authority, write_certificate
from forebay.local.cluster import Cluster
from forebay.local.etcd import EtcdCluster, EtcdFailed, EtcdServer
from forebay.local.secure_setup import SecureSetup, make_private
from forebay.testing import Broker
from support.brokers.forebay_command import forebay

SECONDS = 20
KEY = b64encode(b"/forebay/local/users/admin").decode()


def put(url: str, context: ssl.SSLContext | None = None) -> None:
    """Raises OSError unless it is let in."""
    body = f'{{"key": "{KEY}", "value": "eA=="}}'.encode()
    request = urllib.request.Request(f"{url}/v3/kv/put", data=body)
    with urllib.request.urlopen(request, timeout=SECONDS, context=context) as answer:
        answer.read()


def context_of(security: Path, certificate: Path | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(security / "etcd" / "ca.pem"))
    if certificate is not None:
        context.load_cert_chain(certificate)
    return context


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_only_the_certificate_of_the_brokers_opens_the_etcd_of_a_secure_cluster(tmp_path: Path) -> None:
    data = tmp_path / "cluster"
    with Cluster(1, secure=True, data_dir=data) as cluster:
        security, endpoint = data / "security", cluster.etcd.servers[0].endpoint
        assert mode(data) == mode(security) == 0o700
        # Of the authority that clients and brokers trust.
        write_certificate(tmp_path / "ada.pem", Authority.load(security).issue("ada"))
        with pytest.raises(OSError):
            put(f"http://{endpoint}")
        with pytest.raises(OSError):
            put(f"https://{endpoint}", context_of(security))
        with pytest.raises(OSError):
            put(f"https://{endpoint}", context_of(security, tmp_path / "ada.pem"))
        peer = cluster.etcd.servers[0].peer_url
        assert peer.startswith("https://127.0.0.1:")
        for context in (context_of(security), context_of(security, tmp_path / "ada.pem")):
            with pytest.raises(OSError):
                urllib.request.urlopen(f"{peer}/members", timeout=SECONDS, context=context)
        with pytest.raises(OSError):
            urllib.request.urlopen(peer.replace("https", "http"), timeout=SECONDS)
        listed = forebay("user", "list", "--offline", "--config", str(security / "etcd.toml"), "--json")
        assert {each["user"] for each in listed.json()} == {"admin", "broker"}
        assert mode(security / "etcd.toml") == 0o600
        without = forebay("user", "list", "--offline", "--cluster", cluster.etcd.url("local"))
        assert without.code == 1
        put(f"https://{endpoint}", context_of(security, security / "etcd" / "client.pem"))


def durable(data: Path, servers: int, setup: SecureSetup | None) -> EtcdCluster:
    return EtcdCluster(
        servers, data_dir=data / "etcd", durable=True, tls=None if setup is None else setup.etcd_tls
    )


def value(server: EtcdServer) -> str | None:
    found: list[dict[str, Any]] = server.ask("/v3/kv/range", {"key": KEY}).get("kvs", [])
    return found[0]["value"] if found else None


@pytest.mark.parametrize("servers", [1, 3])
def test_etcd_servers_from_before_get_tls_at_their_next_start_and_keep_their_data(
    tmp_path: Path, servers: int
) -> None:
    setup = SecureSetup(tmp_path / "security")
    setup.make_files([])
    setup.make_etcd_files()
    with durable(tmp_path, servers, None) as etcd:
        etcd.servers[0].ask("/v3/kv/put", {"key": KEY, "value": "b2xk"})
        plain = [server.peer_url for server in etcd.servers]
        cluster_id = etcd.servers[0].ask("/v3/kv/range", {"key": KEY})["header"]["cluster_id"]
    assert all(url.startswith("http://") for url in plain)
    for _ in range(2):
        with durable(tmp_path, servers, setup) as etcd:
            members = etcd.servers[-1].ask("/v3/cluster/member/list", {})["members"]
            assert sorted(member["peerURLs"][0] for member in members) == sorted(
                server.peer_url for server in etcd.servers
            )
            assert all(server.peer_url.startswith("https://") for server in etcd.servers)
            assert [value(server) for server in etcd.servers] == ["b2xk"] * servers
            assert etcd.servers[0].ask("/v3/kv/range", {"key": KEY})["header"]["cluster_id"] == cluster_id
    with pytest.raises(EtcdFailed, match="TLS"):
        durable(tmp_path, servers, None).start()


def test_an_upgrade_that_was_cut_off_is_finished_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup = SecureSetup(tmp_path / "security")
    setup.make_files([])
    setup.make_etcd_files()
    with durable(tmp_path, 3, None) as etcd:
        etcd.servers[0].ask("/v3/kv/put", {"key": KEY, "value": "b2xk"})
    updates: list[str] = []
    ask = EtcdServer.ask

    def cut_off(self: EtcdServer, path: str, *rest: Any) -> dict[str, Any]:
        if path.endswith("member/update"):
            updates.append(self.name)
            if len(updates) == 2:
                raise KeyboardInterrupt
        return ask(self, path, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(EtcdServer, "ask", cut_off)
        etcd = durable(tmp_path, 3, setup)
        with pytest.raises(KeyboardInterrupt):
            etcd.start()
        etcd.stop()
    with durable(tmp_path, 3, setup) as etcd:
        assert [value(server) for server in etcd.servers] == ["b2xk"] * 3
        assert all(server.peer_url.startswith("https://") for server in etcd.servers)


def test_a_cluster_from_before_becomes_secure_and_its_etcd_stays_so(tmp_path: Path) -> None:
    data = tmp_path / "cluster"
    with Cluster(1, data_dir=data) as cluster:
        assert forebay("topic", "create", "kept", bootstrap=cluster.bootstrap_servers).code == 0
    with Cluster(1, secure=True, data_dir=data) as cluster:
        assert cluster.client_file is not None and mode(data) == 0o700
        listed = forebay("topic", "list", "--command-config", str(cluster.client_file))
        assert "kept" in listed.out, listed.err
    with Cluster(1, data_dir=data) as cluster:
        assert cluster.etcd.url("local").startswith("etcds://")
        assert "kept" in forebay("topic", "list", bootstrap=cluster.bootstrap_servers).out


# -- directories -------------------------------------------------------------------------------------------


def test_a_secure_broker_makes_its_data_directory_private(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir(mode=0o755)
    data.chmod(0o755)
    with Broker(secure=True, data_dir=data):
        assert mode(data) == 0o700


@pytest.mark.parametrize(("permissions", "content"), [(0o1777, None), (0o755, "passwd")])
def test_a_directory_that_is_used_for_other_things_is_not_made_private(
    tmp_path: Path, permissions: int, content: str | None
) -> None:
    """As root, --data /tmp or --data /etc would take that from everybody."""
    shared = tmp_path / "shared"
    shared.mkdir()
    if content is not None:
        (shared / content).touch()
    shared.chmod(permissions)
    with pytest.raises(ConfigError, match="directory of its own"):
        make_private(shared)
    assert mode(shared) == permissions


@pytest.mark.parametrize("content", ["lost+found", "meta.properties", "etcd", "security"])
def test_an_empty_disk_and_a_directory_of_ours_are_made_private(tmp_path: Path, content: str) -> None:
    ours = tmp_path / "ours"
    (ours / content).mkdir(parents=True)
    ours.chmod(0o755)
    make_private(ours)
    assert mode(ours) == 0o700
