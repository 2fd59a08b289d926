"""`forebay top`: what it shows of a real cluster, and how it decides what is wrong."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from forebay.cli.top.screen import bytes_text, duration_text, rate_text
from forebay.cli.top.snapshot import Disk, GroupSeen, Overview, Snapshot, overview
from forebay.operations.cluster.cluster_state import BrokerLoad
from forebay.operations.messages.log_offsets import Place
from forebay.testing import Cluster
from support.brokers.forebay_command import command, environment, forebay
from support.busy_broker import busy_broker
from support.clients.wire_client import WireClient, append, batch
from support.waiting import readable

SECONDS_MAX = 60.0

# -- deciding ------------------------------------------------------------------------------------------


def load(node: int, *, alive: bool = True, leaders: int = 1) -> BrokerLoad:
    return BrokerLoad(
        id=node,
        alive=alive,
        drained=False,
        address=f"10.0.0.{node}:9092",
        rack=None,
        controller=node == 1,
        leaders=leaders,
        replicas=3,
        out_of_sync=0,
    )


def snapshot(ends: Mapping[Place, int], at_s: float = 0.0, **others: Any) -> Snapshot:
    quiet: dict[str, Any] = {
        "at_s": at_s,
        "brokers": [load(1), load(2)],
        "leaders": {at: 1 + at[1] % 2 for at in ends},
        "ends": ends,
        "disks": {},
        "groups": {},
        "silent": frozenset(),
        "leaderless": 0,
        "under_replicated": 0,
        "moving": 0,
    }
    return Snapshot(**{**quiet, **others})


def seen(before: Snapshot | None, now: Snapshot, rows: int = 10) -> Overview:
    return overview(before, now, internal=False, rows=rows)


def test_rates_are_those_between_two_looks() -> None:
    first = snapshot({("a", 0): 10, ("a", 1): 10, ("b", 0): 5, ("__x", 0): 0})
    second = snapshot({("a", 0): 30, ("a", 1): 50, ("b", 0): 5, ("__x", 0): 40}, at_s=2.0)
    found = seen(first, second)
    assert [(row.name, row.partitions, row.rate) for row in found.topics] == [("a", 2, 30.0), ("b", 1, 0.0)]
    assert [row.rate for row in found.brokers] == [30.0, 20.0]
    assert found.rate == 50.0
    assert seen(None, second).rate is None


def test_a_partition_that_was_deleted_and_made_again_has_no_rate_below_zero() -> None:
    found = seen(snapshot({("a", 0): 10}), snapshot({("a", 0): 3, ("a", 1): 7}, at_s=1.0))
    assert found.topics[0].rate == 0.0


def test_groups_come_by_their_lag_with_the_rate_at_which_they_read() -> None:
    at = ("a", 0)
    small = GroupSeen(name="small", kind="classic", state="Stable", positions={at: 90}, lag={at: 10})
    large = GroupSeen(name="large", kind="consumer", state="Stable", positions={at: 40}, lag={at: 60})
    now = snapshot({at: 100}, at_s=4.0, groups={"small": small, "large": large})
    before = snapshot({at: 100}, groups={"large": replace(large, positions={at: 20})})
    found = seen(before, now)
    assert [(row.group.name, row.rate) for row in found.groups] == [("large", 5.0), ("small", None)]
    assert len(seen(before, now, rows=1).groups) == 1


def test_problems_name_what_is_wrong_and_what_to_do() -> None:
    at = ("a", 0)
    left = GroupSeen(name="left", kind="share", state="Empty", positions={at: 0}, lag={at: 5}, seconds=1.0)
    slow = GroupSeen(name="slow", kind="classic", state="Stable", positions={at: 0}, lag={at: 5}, seconds=9e3)
    fine = GroupSeen(name="fine", kind="classic", state="Stable", positions={at: 4}, lag={at: 1}, seconds=2.0)
    now = snapshot(
        {at: 5},
        brokers=[load(1), load(2), load(3, alive=False)],
        silent=frozenset({2}),
        leaderless=1,
        under_replicated=2,
        disks={1: Disk(total_bytes=100, free_bytes=5, topic_bytes={})},
        groups={"left": left, "slow": slow, "fine": fine},
    )
    told = "\n".join(seen(None, now).problems)
    for expected in (
        "broker 3 is away",
        "broker 2 does not answer",
        "1 partitions have no leader",
        "2 partitions are under-replicated",
        "the disk of broker 1 is 95% full",
        "left is 5 messages, 1 s behind and has no members: `forebay share describe left`",
        "slow is 5 messages, 9,000 s behind: `forebay group describe slow`",
    ):
        assert expected in told
    assert "fine" not in told
    assert seen(None, snapshot({at: 5})).problems == []


def test_numbers_are_written_for_people() -> None:
    assert [rate_text(rate) for rate in (None, 0.0, 0.5, 12_345.6)] == ["-", "0", "0.5", "12,346"]
    assert [bytes_text(size) for size in (None, 0, 999, 1500, 2_000_000_000)] == [
        "-",
        "0 B",
        "999 B",
        "1.5 kB",
        "2.0 GB",
    ]
    assert [duration_text(s) for s in (0.25, 59, 120, 7200, 200_000)] == [
        "0.2 s",
        "59.0 s",
        "2 min",
        "2.0 h",
        "2.3 d",
    ]


# -- showing -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with busy_broker(tmp_path_factory.mktemp("busy")) as broker:
        yield broker.bootstrap


def top(bootstrap: str, *options: str) -> Any:
    done = forebay("top", "--once", "--interval", "0.2", *options, bootstrap=bootstrap)
    assert done.code == 0, done.err
    return done


def test_once_prints_brokers_topics_groups_and_problems(bootstrap: str) -> None:
    out = top(bootstrap).out
    for expected in ("BROKER", "1 (controller)", "orders", "jobs", "billing", "workers", "messages a second"):
        assert expected in out
    assert "__consumer_offsets" not in out
    assert "__consumer_offsets" in top(bootstrap, "--internal").out
    assert "! billing is 2 messages" in out
    assert "has no members: `forebay group describe billing`" in out


def test_json_has_the_same_with_lag_in_messages_and_seconds(bootstrap: str) -> None:
    found = top(bootstrap, "--json").json()
    groups = {group["group"]: group for group in found["groups"]}
    assert groups["billing"]["lag"] == 2
    assert 3600 <= groups["billing"]["lag_seconds"] < 4200
    assert (groups["workers"]["type"], groups["workers"]["lag"]) == ("share", 10)
    (broker,) = found["brokers"]
    assert (broker["broker"], broker["state"], broker["controller"]) == (1, "up", True)
    assert broker["disk_free_bytes"] > 0
    topics = {topic["topic"]: topic for topic in found["topics"]}
    assert topics["orders"]["partitions"] == 2
    assert topics["orders"]["bytes"] > 0


def test_rates_are_counted_while_messages_come(bootstrap: str) -> None:
    """A producer that goes on until the command has ended."""
    shown = subprocess.Popen(
        command("top", "--json", "--interval", "1"), stdout=subprocess.PIPE, env=environment(bootstrap)
    )
    with WireClient(bootstrap) as client:
        while shown.poll() is None:
            append(client, "orders", batch(b"x"), partition=1)
    assert shown.stdout is not None
    out = shown.stdout.read()
    shown.stdout.close()
    assert re.search(rb'"messages_per_second": [1-9]', out), out


def test_nobody_who_answers_is_told_in_one_line(tmp_path: Path) -> None:
    done = forebay("top", "--once", bootstrap="127.0.0.1:1")
    assert done.code == 1
    assert done.err.startswith("forebay: no broker answers at 127.0.0.1:1")


def test_at_a_terminal_it_refreshes_until_it_is_interrupted(bootstrap: str) -> None:
    leader, follower = pty.openpty()
    env = {**environment(bootstrap), "TERM": "xterm", "COLUMNS": "160", "LINES": "50"}
    shown = subprocess.Popen(
        command("top", "--interval", "0.2"), stdin=follower, stdout=follower, stderr=follower, env=env
    )
    os.close(follower)
    try:
        text = _read_until(leader, lambda text: text.count("messages a second") >= 3)
        assert "orders" in text
        shown.send_signal(signal.SIGINT)
        _read_until(leader, lambda _: shown.poll() is not None)
        assert shown.returncode == 0
    finally:
        shown.kill()
        shown.wait()
        os.close(leader)


def _read_until(terminal: int, enough: Any) -> str:
    text, deadline = "", time.monotonic() + SECONDS_MAX
    while not enough(text):
        assert time.monotonic() < deadline, text
        if readable([terminal], 0.1):
            try:
                text += os.read(terminal, 65536).decode(errors="replace")
            except OSError:  # the other side is closed
                time.sleep(0.05)
    return text


def test_a_broker_that_is_down_is_a_problem_and_the_rest_is_shown() -> None:
    with Cluster(brokers=2, settings={"forebay.lease.ttl.ms": 6_000}) as cluster:
        servers = cluster.bootstrap_servers
        assert forebay("topic", "create", "spread", "--partitions", "4", bootstrap=servers).code == 0
        cluster.kill(2)
        deadline = time.monotonic() + SECONDS_MAX
        found: dict[str, Any] = {}
        while not any("broker 2 is away" in problem for problem in found.get("problems", ())):
            assert time.monotonic() < deadline, found
            found = top(servers, "--json").json()
        states = {broker["broker"]: broker["state"] for broker in found["brokers"]}
        assert states == {1: "up", 2: "away"}
        assert any("under-replicated" in problem for problem in found["problems"])
