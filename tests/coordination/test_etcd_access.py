"""Getting to etcd: TLS, client certificates, users; and errors that say what to do."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from forebay.config import ClusterConfig, broker_config
from forebay.coordination.etcd.gateway import REQUEST_TIMEOUT_S
from forebay.coordination.etcd.store import EtcdStore
from forebay.coordination.store import Put, StoreError
from forebay.errors import ConfigError
from forebay.local.etcd import EtcdCluster, EtcdTls
from forebay.local.ports import ReservedPort
from support.brokers.forebay_command import forebay
from support.brokers.shared_etcd import until_renewed
from support.faults.certificates import Authority
from support.faults.etcd_backup import restore_backup, save_backup

USER, PASSWORD = "forebay", "s3cret"
LOGIN = {"forebay.etcd.user": USER, "forebay.etcd.password": PASSWORD}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"), "ca")


@pytest.fixture(scope="module")
def server_tls(authority: Authority) -> EtcdTls:
    cert_file, key_file = authority.issue("server")
    return EtcdTls(ca_file=authority.ca_file, cert_file=cert_file, key_file=key_file)


@pytest.fixture(scope="module")
def secure_etcd(server_tls: EtcdTls) -> Iterator[EtcdCluster]:
    with EtcdCluster(1, tls=server_tls) as etcd:
        yield etcd


@pytest.fixture(scope="module")
def guarded_etcd() -> Iterator[EtcdCluster]:
    """One that asks for a user; ours may use the keys of the cluster "test" only."""
    with EtcdCluster(1) as etcd:
        enable_users(etcd)
        yield etcd


def enable_users(etcd: EtcdCluster) -> None:
    for name, role in (("root", "root"), (USER, "brokers")):
        ask(etcd, "/v3/auth/user/add", name=name, password=PASSWORD)
        ask(etcd, "/v3/auth/role/add", name=role)
        ask(etcd, "/v3/auth/user/grant", user=name, role=role)
    # The keys from "/forebay/test/" to "/forebay/test0", in base64.
    keys = {"permType": "READWRITE", "key": "L2ZvcmViYXkvdGVzdC8=", "range_end": "L2ZvcmViYXkvdGVzdDA="}
    ask(etcd, "/v3/auth/role/grant", name="brokers", perm=keys)
    ask(etcd, "/v3/auth/enable")


def ask(etcd: EtcdCluster, path: str, **body: Any) -> None:
    etcd.servers[0].ask(path, body)


def settings(etcd: EtcdCluster, **more: str) -> ClusterConfig:
    named = {name.replace("_", "."): value for name, value in more.items()}
    return broker_config({"forebay.cluster": etcd.url("test"), **named}).cluster


async def use(config: ClusterConfig, request_timeout_s: float = REQUEST_TIMEOUT_S) -> None:
    store = await EtcdStore.open(config, request_timeout_s=request_timeout_s)
    try:
        key = f"/forebay/{config.name}/key"
        made = await store.txn(puts=[Put(key=key, value=b"x")])
        async with asyncio.timeout(60):
            async for _, revision in store.watch(key, made.revision):
                assert revision == made.revision
                break
    finally:
        await store.close()


async def refusal(config: ClusterConfig, request_timeout_s: float = REQUEST_TIMEOUT_S) -> str:
    with pytest.raises(StoreError) as caught:
        await use(config, request_timeout_s)
    return str(caught.value)


# -- TLS -----------------------------------------------------------------------------------------------


def files(authority: Authority, name: str, *, common_name: bool = True) -> dict[str, str]:
    cert_file, key_file = authority.issue(name, common_name=common_name)
    return {
        "forebay_etcd_ca_file": str(authority.ca_file),
        "forebay_etcd_cert_file": str(cert_file),
        "forebay_etcd_key_file": str(key_file),
    }


async def test_a_certificate_that_is_renewed_is_shown_from_then_on(
    secure_etcd: EtcdCluster, authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cert_file, key_file = tmp_path / "cert.pem", tmp_path / "key.pem"
    stranger = Authority(tmp_path, "another").issue("broker")
    ours = authority.issue("broker")

    def put(certificate: tuple[Path, Path]) -> None:
        for source, target in zip(certificate, (cert_file, key_file), strict=True):
            target.write_bytes(source.read_bytes())

    put(stranger)
    names = {"forebay.etcd.cert.file": str(cert_file), "forebay.etcd.key.file": str(key_file)}
    store = EtcdStore(settings(secure_etcd, **names, **{"forebay.etcd.ca.file": str(authority.ca_file)}))
    try:
        with pytest.raises(StoreError):
            await store.get("/forebay/test/renewed")
        put(ours)
        assert await store.get("/forebay/test/renewed") is None
        cert_file.write_text("half a cert")
        for connections in store.gateway._idle:  # the next request opens another one
            while connections:
                connections.pop().abort()
        assert await store.get("/forebay/test/renewed") is None
        assert "going on with the certificates that were read before" in caplog.text
    finally:
        await store.close()


async def test_a_broker_shows_its_certificate(secure_etcd: EtcdCluster, authority: Authority) -> None:
    config = settings(secure_etcd, **files(authority, "broker"))
    await use(config)
    store = await EtcdStore.open(config)
    await until_renewed(await store.lease(4))
    await store.close()


async def test_a_server_that_nobody_vouches_for_is_refused(secure_etcd: EtcdCluster, tmp_path: Path) -> None:
    other = Authority(tmp_path, "other")
    assert "forebay.etcd.ca.file" in await refusal(settings(secure_etcd, **files(other, "broker")))


async def test_a_broker_without_certificate_is_told_what_is_missing(
    secure_etcd: EtcdCluster, authority: Authority
) -> None:
    config = settings(secure_etcd, forebay_etcd_ca_file=str(authority.ca_file))
    assert "forebay.etcd.cert.file" in await refusal(config)


async def test_tls_and_plain_are_told_apart(
    secure_etcd: EtcdCluster, one_etcd: EtcdCluster, authority: Authority
) -> None:
    plain = broker_config({"forebay.cluster": f"etcd://{secure_etcd.endpoints}/test"}).cluster
    assert "etcds://" in await refusal(plain, 4.0)
    secure = broker_config({"forebay.cluster": f"etcds://{one_etcd.endpoints}/test"}).cluster
    assert "write etcd://" in await refusal(secure, 4.0)


async def test_files_that_are_no_certificates(secure_etcd: EtcdCluster, tmp_path: Path) -> None:
    (tmp_path / "junk.pem").write_text("junk")
    with pytest.raises(ConfigError, match=r"forebay\.etcd\.ca\.file"):
        await use(settings(secure_etcd, forebay_etcd_ca_file=str(tmp_path / "junk.pem")))


# -- users ---------------------------------------------------------------------------------------------


async def test_a_user_is_let_in(guarded_etcd: EtcdCluster) -> None:
    await use(settings(guarded_etcd, **LOGIN))


async def test_a_login_that_has_run_out_is_renewed(guarded_etcd: EtcdCluster) -> None:
    store = await EtcdStore.open(settings(guarded_etcd, **LOGIN))
    try:
        for _ in range(2):
            store.gateway.token = "forgotten.1"
            assert (await store.txn(puts=[Put(key="/forebay/test/key", value=b"x")])).ok
            store.gateway.token = "forgotten.2"
            async with asyncio.timeout(60):
                watch = store.watch("/forebay/test/key", 1)
                assert (await anext(watch))[0] == [], "its first stream was refused"
                assert (await anext(watch))[0]
    finally:
        await store.close()


async def test_a_login_from_before_a_change_of_rights_is_renewed(guarded_etcd: EtcdCluster) -> None:
    store = await EtcdStore.open(settings(guarded_etcd, **LOGIN))
    try:
        login = guarded_etcd.servers[0].ask("/v3/auth/authenticate", {"name": "root", "password": PASSWORD})
        guarded_etcd.servers[0].ask("/v3/auth/role/add", {"name": "another"}, login["token"])
        assert (await store.txn(puts=[Put(key="/forebay/test/key", value=b"x")])).ok
        await until_renewed(await store.lease(4))
    finally:
        await store.close()


async def test_a_login_from_before_a_restore_is_renewed(lone_etcd: EtcdCluster, tmp_path: Path) -> None:
    """etcd waits for the index in the token, which a restored one has not come to, and does not answer."""
    enable_users(lone_etcd)
    save_backup(lone_etcd, tmp_path / "backup", user=f"root:{PASSWORD}")
    store = await EtcdStore.open(settings(lone_etcd, **LOGIN))
    try:
        before = await store.identity()
        restore_backup(lone_etcd, tmp_path / "backup")
        after = await store.identity()
        assert after.index < before.index
        assert await store.get("/forebay/test/key") is None
    finally:
        await store.close()


async def test_without_login_the_settings_are_named(guarded_etcd: EtcdCluster) -> None:
    assert "set forebay.etcd.user" in await refusal(settings(guarded_etcd))


async def test_a_wrong_password(guarded_etcd: EtcdCluster) -> None:
    wrong = {"forebay.etcd.user": USER, "forebay.etcd.password": "wrong"}
    assert f"check forebay.etcd.user ({USER})" in await refusal(settings(guarded_etcd, **wrong))


async def test_a_user_without_rights(guarded_etcd: EtcdCluster) -> None:
    url = guarded_etcd.url("other")
    message = await refusal(broker_config({"forebay.cluster": url, **LOGIN}).cluster)
    assert f"give the etcd user {USER} the right" in message


async def test_a_login_that_etcd_does_not_ask_for_does_no_harm(one_etcd: EtcdCluster) -> None:
    await use(settings(one_etcd, **LOGIN))


async def test_with_users_a_certificate_must_have_no_common_name(
    server_tls: EtcdTls, authority: Authority
) -> None:
    with EtcdCluster(1, tls=server_tls) as etcd:
        enable_users(etcd)
        await use(settings(etcd, **LOGIN, **files(authority, "nameless", common_name=False)))
        message = await refusal(settings(etcd, **LOGIN, **files(authority, "named")))
        assert "without a common name" in message


async def test_what_forebay_certs_makes_serves_etcd_and_its_users(tmp_path: Path) -> None:
    certs = tmp_path / "certs"
    made = forebay("certs", "create", str(certs), "--broker", "etcd=127.0.0.1", "--etcd-client", USER)
    assert made.code == 0 and "without a common name" in made.out, made.err
    server, shown = certs / "etcd.pem", str(certs / f"{USER}.pem")
    with EtcdCluster(1, tls=EtcdTls(ca_file=certs / "ca.pem", cert_file=server, key_file=server)) as etcd:
        enable_users(etcd)
        names = {"forebay.etcd.cert.file": shown, "forebay.etcd.key.file": shown}
        await use(settings(etcd, **LOGIN, **names, **{"forebay.etcd.ca.file": str(certs / "ca.pem")}))


# -- what is not etcd ------------------------------------------------------------------------------------


async def test_nothing_there() -> None:
    with contextlib.closing(ReservedPort()) as nobody:
        config = broker_config({"forebay.cluster": f"etcd://127.0.0.1:{nobody.number}/test"}).cluster
        message = await refusal(config, 3.0)
    assert "refused" in message
    assert "forebay.cluster" in message


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n", "not HTTP"),
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\nnope", "client port"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", "not etcd"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n", "99999999999 bytes"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", "not a length"),
        (b"x" * 200_000, "a line without end"),
    ],
    ids=["ssh", "not-found", "other-json", "too-long", "bad-chunk", "endless"],
)
async def test_something_else_there(answer: bytes, told: str) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        config = broker_config({"forebay.cluster": f"etcd://127.0.0.1:{port}/test"}).cluster
        assert told in await refusal(config)
