"""Settings of TLS that are changed on a running broker: tried first, then in force for new connections."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from forebay.broker.telemetry.metrics import Metrics
from forebay.broker.tls.endpoint import TlsEndpoint, prepare
from forebay.broker.tls.setting_changes import check_accepts_itself
from forebay.config import broker_config
from forebay.coordination.store import Put
from forebay.core.cluster.config_changes import AlterOp
from forebay.core.cluster.image_changes import ConfigOwner, ConfigPut
from forebay.errors import ConfigError, ErrorCode
from forebay.local.certificates import Authority
from forebay.local.settings import BrokerFailed
from forebay.wire.messages import alter_configs as whole
from forebay.wire.messages import incremental_alter_configs as single
from forebay.wire.messages.api_versions import ApiVersionsRequest
from forebay.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from support.brokers.local_broker import LocalBroker, local_broker
from support.brokers.tls_files import HOSTS, TlsFiles
from support.clients.wire_client import WireClient
from support.machines.enough_cores import stranger_work
from support.waiting import Patience

BROKER = 4
LISTENERS = {
    "listeners": "PLAINTEXT://127.0.0.1:0,OUTSIDE://127.0.0.1:0,SSL://127.0.0.1:0",
    "listener.security.protocol.map": "OUTSIDE:SSL",
}
OUTSIDE = "listener.name.outside."


@pytest.fixture
def files(tmp_path: Path) -> TlsFiles:
    return TlsFiles(tmp_path)


@pytest.fixture
def broker(files: TlsFiles, tmp_path: Path) -> Iterator[LocalBroker]:
    with started(files, tmp_path / "data") as running:
        yield running


def started(files: TlsFiles, data: Path) -> Any:
    return local_broker(data, {**files.broker_settings(), **LISTENERS})


def address(broker: LocalBroker, listener: str) -> str:
    host, port = broker.on_loop(lambda node: node.server.addresses[listener])
    return f"{host}:{port}"


def alter(
    broker: LocalBroker,
    settings: dict[str, str | None],
    *,
    name: str | None = None,
    validate_only: bool = False,
) -> tuple[int, str]:
    """Code and message; a setting without a value is deleted."""
    node = str(broker.on_loop(lambda node: node.node_id)) if name is None else name
    configs = [
        single.AlterableConfig(
            name=key, config_operation=AlterOp.DELETE if value is None else AlterOp.SET, value=value
        )
        for key, value in settings.items()
    ]
    resource = single.AlterConfigsResource(resource_type=BROKER, resource_name=node, configs=configs)
    request = single.IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    with WireClient(address(broker, "PLAINTEXT")) as client:
        (answer,) = client.call(request, 1).responses
    return answer.error_code, answer.error_message or ""


def describe(broker: LocalBroker, key: str) -> list[tuple[str | None, int, bool]]:
    node = str(broker.on_loop(lambda node: node.node_id))
    asked = DescribeConfigsResource(resource_type=BROKER, resource_name=node, configuration_keys=[key])
    with WireClient(address(broker, "PLAINTEXT")) as client:
        (found,) = client.call(DescribeConfigsRequest(resources=[asked]), 4).results
    return [(each.value, each.config_source, each.read_only) for each in found.configs]


def context(ca: str, certificate: str | None = None) -> ssl.SSLContext:
    made = ssl.create_default_context(cafile=ca)
    if certificate is not None:
        made.load_cert_chain(certificate)
    return made


def serial(broker: LocalBroker, ca: str, listener: str = "OUTSIDE", certificate: str | None = None) -> str:
    """Which certificate a listener shows, to a client that is served."""
    with WireClient(address(broker, listener), tls=context(ca, certificate)) as client:
        client.call(ApiVersionsRequest(), 0)
        assert isinstance(client.socket, ssl.SSLSocket)
        shown = client.socket.getpeercert()
    assert shown is not None
    return str(shown["serialNumber"])


def is_served(broker: LocalBroker, ca: str, certificate: str | None = None) -> bool:
    try:
        serial(broker, ca, certificate=certificate)
    except OSError:
        return False
    return True


def test_a_listener_gets_another_certificate_and_others_keep_theirs(
    broker: LocalBroker, files: TlsFiles
) -> None:
    before = serial(broker, files.ca)
    with WireClient(address(broker, "OUTSIDE"), tls=context(files.ca)) as open_before:
        open_before.call(ApiVersionsRequest(), 0)
        other = files.issue("other", *HOSTS)
        assert alter(broker, {OUTSIDE + "ssl.keystore.location": other}) == (0, "")
        after = serial(broker, files.ca)
        assert after != before
        assert serial(broker, files.ca, "SSL") == before
        assert open_before.call(ApiVersionsRequest(), 0).error_code == 0, "open connections go on"
    (entry,) = describe(broker, OUTSIDE + "ssl.keystore.location")
    assert entry == (other, 2, False)
    assert alter(broker, {OUTSIDE + "ssl.keystore.location": None}) == (0, "")
    assert serial(broker, files.ca) == before


def test_a_new_certificate_is_read_again_when_its_file_changes(broker: LocalBroker, files: TlsFiles) -> None:
    other = files.issue("other", *HOSTS)
    assert alter(broker, {OUTSIDE + "ssl.keystore.location": other}) == (0, "")
    before = serial(broker, files.ca)
    files.issue("other", *HOSTS)
    broker.on_loop(lambda node: node.tls.reload())
    patience = Patience("the new certificate is shown")
    while serial(broker, files.ca) == before:
        patience.check()


def test_clients_are_asked_for_certificates_from_now_on(broker: LocalBroker, files: TlsFiles) -> None:
    assert is_served(broker, files.ca)
    rules = r"RULE:^CN=(.*?),OU=people.*$/$1/, DEFAULT"
    changes: dict[str, str | None] = {
        OUTSIDE + "ssl.client.auth": "required",
        OUTSIDE + "ssl.principal.mapping.rules": rules,
    }
    assert alter(broker, changes) == (0, "")
    assert not is_served(broker, files.ca)
    with WireClient(address(broker, "OUTSIDE"), tls=context(files.ca, files.client)) as client:
        client.call(ApiVersionsRequest(), 0)
        port = client.socket.getsockname()[1]
        principals = broker.on_loop(
            lambda node: [each.principal for each in node.server.connections if each.peer[1] == port]
        )
    assert principals == ["User:ada"]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"ssl.keystore.location": "/nowhere/x.pem"}, "No such file"),
        ({"ssl.keystore.location": "CA"}, "needs a certificate and its key"),
        ({"ssl.truststore.location": "/nowhere/x.pem", "ssl.client.auth": "required"}, "No such file"),
        ({"ssl.truststore.certificates": "nonsense"}, "not both"),
        ({"ssl.client.auth": "sometimes"}, "is not allowed"),
        ({"ssl.enabled.protocols": "SSLv3"}, "is not allowed"),
        ({"ssl.principal.mapping.rules": "RULE:("}, "Invalid value"),
        ({"ssl.keystore.key": "x"}, "would be in the store for all to read"),
        ({"ssl.key.password": "x"}, "would be in the store for all to read"),
        ({"forebay.ssl.reload.interval.ms": "500"}, "is read when the broker starts"),
    ],
)
def test_what_cannot_work_is_refused_and_the_old_stays_in_force(
    broker: LocalBroker, files: TlsFiles, changes: dict[str, str], says: str
) -> None:
    before = serial(broker, files.ca)
    wanted = {OUTSIDE + key: files.ca if value == "CA" else value for key, value in changes.items()}
    code, message = alter(broker, {**wanted})
    assert code == ErrorCode.INVALID_REQUEST
    assert says in message, message
    assert serial(broker, files.ca) == before
    assert broker.on_loop(lambda node: dict(node.image.broker_configs)) == {}


@pytest.mark.parametrize(
    ("name", "key", "says"),
    [
        (None, "ssl.client.auth", "only per-listener using the listener prefix"),
        ("", OUTSIDE + "ssl.client.auth", "at default cluster level"),
        (None, "listener.name.nowhere.ssl.client.auth", "no such listener speaks TLS"),
        (None, "listener.name.plaintext.ssl.client.auth", "no such listener speaks TLS"),
    ],
)
def test_settings_are_for_one_listener_of_one_broker(
    broker: LocalBroker, name: str | None, key: str, says: str
) -> None:
    code, message = alter(broker, {key: "none"}, name=name)
    assert code == ErrorCode.INVALID_REQUEST
    assert says in message, message


def test_to_validate_changes_nothing(broker: LocalBroker, files: TlsFiles) -> None:
    before, other = serial(broker, files.ca), files.issue("other", *HOSTS)
    for place, code in ((other, ErrorCode.NONE), ("/nowhere", ErrorCode.INVALID_REQUEST)):
        assert alter(broker, {OUTSIDE + "ssl.keystore.location": place}, validate_only=True)[0] == code
    assert serial(broker, files.ca) == before


def test_all_settings_of_a_broker_at_once_are_tried_too(broker: LocalBroker, files: TlsFiles) -> None:
    other, before = files.issue("other", *HOSTS), serial(broker, files.ca)
    node = str(broker.on_loop(lambda node: node.node_id))

    def replace_all(**settings: str) -> int:
        configs = [
            whole.AlterableConfig(name=OUTSIDE + key.replace("_", "."), value=value)
            for key, value in settings.items()
        ]
        resource = whole.AlterConfigsResource(resource_type=BROKER, resource_name=node, configs=configs)
        with WireClient(address(broker, "PLAINTEXT")) as client:
            (answer,) = client.call(whole.AlterConfigsRequest(resources=[resource]), 2).responses
        return int(answer.error_code)

    assert replace_all(ssl_keystore_location="/nowhere") == ErrorCode.INVALID_REQUEST
    assert replace_all(ssl_keystore_location=other) == ErrorCode.NONE
    assert serial(broker, files.ca) != before
    assert replace_all() == ErrorCode.NONE
    assert serial(broker, files.ca) == before


def test_changed_settings_are_in_force_after_a_restart(files: TlsFiles, tmp_path: Path) -> None:
    with started(files, tmp_path / "data") as broker:
        assert alter(broker, {OUTSIDE + "ssl.client.auth": "required"}) == (0, "")
    with started(files, tmp_path / "data") as broker:
        assert not is_served(broker, files.ca)
        assert is_served(broker, files.ca, files.client)


def test_a_broker_does_not_start_less_protected_than_it_was(files: TlsFiles, tmp_path: Path) -> None:
    with started(files, tmp_path / "data") as broker:
        assert alter(broker, {OUTSIDE + "ssl.client.auth": "required"}) == (0, "")
    settings = {**files.broker_settings(), **LISTENERS}
    del settings["ssl.truststore.location"]
    with (
        pytest.raises(BrokerFailed, match=r"needs ssl\.truststore\.location"),
        local_broker(tmp_path / "data", settings),
    ):
        pass
    only_plain = {"listeners": "PLAINTEXT://127.0.0.1:0"}
    with local_broker(tmp_path / "data", only_plain) as broker:
        assert broker.on_loop(lambda node: node.config.tls) == {}, (
            "the listener is gone, and its settings too"
        )


def test_settings_that_another_has_stored_are_used_as_soon_as_their_files_are(
    broker: LocalBroker, files: TlsFiles, tmp_path: Path
) -> None:
    """As when they were written into the store by hand: nobody has tried them."""
    late, before = tmp_path / "late.pem", serial(broker, files.ca)
    overrides = {OUTSIDE + "ssl.keystore.location": str(late)}

    def store(node: Any) -> Any:
        change = ConfigPut(owner=ConfigOwner.BROKER, name=str(node.node_id), overrides=overrides)
        return node.background.spawn(node.metadata.change(lambda _: [change]), "storing settings")

    broker.on_loop(store)
    patience = Patience("the settings are seen")
    while not broker.on_loop(lambda node: dict(node.image.broker_configs)):
        patience.check()
    assert serial(broker, files.ca) == before, "the old certificate stays until there is a new one"
    late.write_text(Path(files.issue("late-one", *HOSTS)).read_text())
    broker.on_loop(lambda node: node.tls.reload())
    patience = Patience("the new certificate is shown")
    while serial(broker, files.ca) == before:
        patience.check()


def test_between_brokers_a_certificate_must_be_accepted_by_the_truststore(files: TlsFiles) -> None:
    config = broker_config(files.broker_settings(client_auth="required")).tls["SSL"]
    check_accepts_itself("SSL", prepare("SSL", config))
    stranger = files.issue("stranger", *HOSTS, authority=Authority.create())
    with pytest.raises(ConfigError, match="would not accept each other's certificates"):
        check_accepts_itself("SSL", prepare("SSL", replace(config, keystore_location=stranger)))
    checked = prepare("SSL", config)
    check_accepts_itself("SSL", checked)
    assert checked.client.check_hostname, "hosts are checked afterwards as before"


def test_settings_that_cannot_be_read_any_more_leave_tls_as_it_was(
    broker: LocalBroker, files: TlsFiles
) -> None:
    assert alter(broker, {OUTSIDE + "ssl.client.auth": "required"}) == (0, "")

    def damage(node: Any) -> Any:
        key = node.metadata.keys.config(ConfigOwner.BROKER, str(node.node_id))
        return node.background.spawn(node.store.txn(puts=[Put(key=key, value=b"{")]), "damaging")

    broker.on_loop(damage)
    patience = Patience("the damage is seen")
    while not broker.on_loop(lambda node: len(node.image.unreadable)):
        patience.check()
    assert not is_served(broker, files.ca)
    assert is_served(broker, files.ca, files.client)


def test_files_that_get_their_rights_after_their_contents_are_read_again(
    files: TlsFiles, tmp_path: Path
) -> None:
    settings = {"log.dirs": str(tmp_path), **files.broker_settings()}
    ((name, config),) = broker_config(settings).tls.items()
    with contextlib.closing(asyncio.new_event_loop()) as loop:
        endpoint = TlsEndpoint(name, config, Metrics(), loop, stranger_work(loop))
    assert endpoint.read_again() is None
    Path(files.broker).chmod(0o640)
    assert endpoint.read_again() is not None
    assert endpoint.read_again() is None
