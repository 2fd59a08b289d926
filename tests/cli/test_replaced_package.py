"""The installed package may be replaced under a running broker: all of its code is in memory by then."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

from confluent_kafka import Consumer, Producer

import forebay
from support.brokers.forebay_command import environment
from support.brokers.forebay_command import forebay as command

LOADED = "all parts are loaded"


def test_a_broker_goes_on_when_its_package_is_gone_from_the_disk(tmp_path: Path) -> None:
    package = tmp_path / "package" / "forebay"
    shutil.copytree(Path(forebay.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    serve = [
        sys.executable,
        "-m",
        "forebay",
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--data",
        str(tmp_path / "d"),
    ]
    path = os.pathsep.join((str(package.parent), environment().get("PYTHONPATH", "")))
    with subprocess.Popen(
        serve,
        env={**environment(), "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=tmp_path,
    ) as broker:
        assert broker.stdout is not None
        try:
            address = next(line for line in broker.stdout if "ready on" in line).split()[3]
            assert any(LOADED in line for line in broker.stdout)
            shutil.rmtree(package)
            _use(address)
        finally:
            broker.send_signal(signal.SIGTERM)
        rest = broker.stdout.read()
    assert broker.returncode == 0
    assert "Error" not in rest


def _use(address: str) -> None:
    """Of most kinds of requests one."""
    topic, group = f"t-{uuid4().hex}", f"g-{uuid4().hex}"
    _command(address, "topic", "create", topic, "--config", "forebay.delay.enable=true")
    _command(address, "topic", "describe", topic)
    _command(address, "config", "get", "topic", topic)
    producer = Producer({"bootstrap.servers": address, "transactional.id": topic})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(topic, b"now")
    producer.commit_transaction()
    settings = {"bootstrap.servers": address, "group.id": group, "auto.offset.reset": "earliest"}
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    try:
        message = None
        while message is None:
            message = consumer.poll(1)
        assert message.value() == b"now"
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    _command(address, "group", "list")
    _command(address, "group", "describe", group)
    _command(address, "share", "list")
    _command(address, "quota", "list")


def _command(address: str, *arguments: str) -> None:
    done = command(*arguments, bootstrap=address)
    assert done.code == 0, done.err
