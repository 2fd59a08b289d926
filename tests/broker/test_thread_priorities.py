"""Which threads of a broker step back where cores are short."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import pytest

from forebay.broker.system_ports import real_ports
from forebay.config import broker_config


@pytest.mark.skipif(sys.platform != "linux", reason="only there has each thread a priority of its own")
def test_checks_of_passwords_let_others_have_a_core_first(tmp_path: Path) -> None:
    """Strangers can have passwords checked without end, each for milliseconds of CPU."""
    ports = real_ports(broker_config({"log.dirs": str(tmp_path)}))

    def priority() -> int:
        return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    found = {}
    for name in ("forebay-login", "forebay-sync"):
        with ports.executor(1, name) as threads:
            found[name] = threads.submit(priority).result()
    assert found == {"forebay-login": min(priority() + 10, 19), "forebay-sync": priority()}
