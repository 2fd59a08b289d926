"""`forebay console`, and the console beside a broker: processes as a user starts them."""

from __future__ import annotations

import re
import signal
import subprocess
import urllib.request
from pathlib import Path

import psutil  # type: ignore[import-untyped]

from forebay.testing import Broker
from support.brokers.forebay_command import command, environment, forebay
from support.waiting import SECONDS_MAX


def _line(process: subprocess.Popen[str], wanted: str) -> str:
    assert process.stdout is not None
    for line in process.stdout:
        if wanted in line:
            return line
    raise AssertionError(f"the process ended without a line with {wanted}")


def _url(line: str) -> str:
    found = re.search(r"http://\S+", line)
    assert found is not None
    return found[0]


def test_the_console_prints_its_address_and_ends_by_a_signal(broker: Broker) -> None:
    process = subprocess.Popen(
        command("console", "-b", broker.bootstrap_servers, "--port", "0"),
        stdout=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    try:
        with urllib.request.urlopen(_url(_line(process, "forebay console on")), timeout=SECONDS_MAX) as page:
            assert b"Forebay console" in page.read()
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=SECONDS_MAX)
    assert process.returncode == 0


def test_a_broker_with_a_console_takes_it_along_when_it_is_killed(tmp_path: Path) -> None:
    options = ("--data", str(tmp_path), "--listen", "127.0.0.1:0", "--console", "--console-port", "0")
    process = subprocess.Popen(
        command("serve", *options), stdout=subprocess.PIPE, text=True, env=environment()
    )
    try:
        url = _url(_line(process, "console: http"))
        with urllib.request.urlopen(url, timeout=SECONDS_MAX) as page:
            assert page.status == 200
        children = psutil.Process(process.pid).children()
        assert len(children) == 1
    finally:
        process.kill()
        process.wait(SECONDS_MAX)
        assert process.stdout is not None
        process.stdout.close()
    gone, alive = psutil.wait_procs(children, SECONDS_MAX)
    assert (len(gone), alive) == (1, [])


def test_other_addresses_need_a_login_and_tls_needs_both_files(broker: Broker) -> None:
    refused = forebay("console", "--host", "0.0.0.0", bootstrap=broker.bootstrap_servers)
    assert refused.code == 2
    assert "--login" in refused.err
    half = forebay("console", "--tls-key", "key.pem", bootstrap=broker.bootstrap_servers)
    assert half.code == 2
    twice = forebay("console", "--cluster", "a=x:1", "--cluster", "a=y:1")
    assert twice.code == 2
    assert "same name" in twice.err
