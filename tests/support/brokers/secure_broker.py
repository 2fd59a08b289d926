"""A broker with TLS, logins and ACLs, as `forebay serve --secure` starts it, and its administrator."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from support.brokers.broker_process import BrokerProcess
from support.brokers.forebay_command import Done, forebay


class SecureProcess(BrokerProcess):
    def _arguments(self) -> list[str]:
        return [*super()._arguments(), "--secure"]


@contextlib.contextmanager
def secure_broker(data: Path) -> Iterator[SecureProcess]:
    broker = SecureProcess(data)
    try:
        broker.start()
        yield broker
    finally:
        broker.close()


def admin(data: Path, *arguments: str, stdin: str = "") -> Done:
    return forebay(*arguments, "--command-config", str(data / "security" / "client.properties"), stdin=stdin)
