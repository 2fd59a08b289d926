"""Commands over TLS with certificates on both sides: properties in librdkafka's words and in Java's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.brokers.forebay_command import forebay
from support.brokers.local_broker import LocalBroker, local_broker
from support.brokers.tls_files import TlsFiles


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    return TlsFiles(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def broker(files: TlsFiles, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    with local_broker(
        tmp_path_factory.mktemp("data"), files.broker_settings(client_auth="required")
    ) as broker:
        yield broker


@pytest.mark.parametrize("words", ["librdkafka", "java"])
def test_commands_speak_tls(broker: LocalBroker, files: TlsFiles, tmp_path: Path, words: str) -> None:
    java = {
        "bootstrap.servers": broker.bootstrap,
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": files.ca,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": files.client,
    }
    settings = java if words == "java" else files.librdkafka(broker.bootstrap, files.client)
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    config = ("--command-config", str(file))
    created = forebay("topic", "create", words, "--config", "forebay.delay.enable=true", *config)
    assert created.code == 0, created.err
    sent = forebay("produce", words, *config, stdin="hello\n")
    assert sent.code == 0, sent.err
    assert forebay("consume", words, "-n", "1", *config).out == "hello\n"
    # A request that the client library does not have, on a connection of our own.
    waiting = forebay("delay", "list", words, "--json", *config)
    assert waiting.code == 0, waiting.err


def test_settings_of_tls_are_changed_on_a_running_broker(
    broker: LocalBroker, files: TlsFiles, tmp_path: Path
) -> None:
    file, key = tmp_path / "client.properties", "listener.name.ssl.ssl.enabled.protocols"
    settings = files.librdkafka(broker.bootstrap, files.client)
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    config = ("--command-config", str(file))
    node = str(broker.on_loop(lambda node: node.node_id))
    done = forebay("config", "set", "broker", node, f"{key}=TLSv1.3", *config)
    assert done.code == 0, done.err
    assert forebay("config", "get", "broker", node, key, *config).out.strip() == "TLSv1.3"
    wrong = forebay("config", "set", "broker", node, "listener.name.ssl.ssl.keystore.location=/x", *config)
    assert (wrong.code, "/x: No such file" in wrong.err) == (1, True), wrong.err
    done = forebay("config", "set", "broker", node, "--delete", key, *config)
    assert done.code == 0, done.err
    assert forebay("config", "get", "broker", node, key, *config).code == 1, "it has no such setting now"


def test_a_file_that_is_not_there_is_named(broker: LocalBroker, tmp_path: Path) -> None:
    missing = tmp_path / "ca.pem"
    options = ["-X", "security.protocol=SSL", "-X", f"ssl.ca.location={missing}"]
    done = forebay("topic", "list", "-b", broker.bootstrap, *options)
    assert done.code == 1
    assert f"ssl.ca.location: there is no file {missing}" in done.err
