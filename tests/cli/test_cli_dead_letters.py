"""Dead letters by the command line, against a real broker."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import AcknowledgeType, ShareConsumer

from forebay.client.transactions import Progress, Transactions
from support.brokers.broker_process import BrokerProcess
from support.brokers.forebay_command import Done, environment, forebay
from support.clients.kafka_clients import CLIENTS, DEADLINE_SECONDS, Headers, Message, create_topic

NOW_MS = time.time_ns() // 1_000_000
DAY_MS = 86_400_000


class Letters:
    """A source topic of two partitions, and a dead-letter topic of one."""

    def __init__(self, bootstrap: str, name: str) -> None:
        self.bootstrap = bootstrap
        self.jobs, self.dead = f"{name}.jobs", f"{name}.dead"
        self.group = f"{name}.g"
        create_topic(bootstrap, self.jobs, 2)
        create_topic(bootstrap, self.dead, 1, **{"errors.deadletterqueue.group.enable": "true"})

    def add(self, *letters: Message) -> None:
        CLIENTS[0].produce(self.bootstrap, self.dead, letters)

    def letter(
        self,
        offset: int,
        *,
        partition: int = 0,
        group: str = "g",
        reason: str = "Offset rejected by client.",
        topic: str | None = None,
        copied: bool = True,
        timestamp: int | None = None,
    ) -> Message:
        own: Headers = (("trace", b"t%d" % offset), ("__dlq.errors.group", b"before")) if copied else ()
        about: Headers = (
            ("__dlq.errors.topic", (topic or self.jobs).encode()),
            ("__dlq.errors.partition", b"%d" % partition),
            ("__dlq.errors.offset", b"%d" % offset),
            ("__dlq.errors.group", group.encode()),
            ("__dlq.errors.delivery.count", b"3"),
            ("__dlq.errors.message", reason.encode()),
        )
        value, key = (b"v%d" % offset, b"k%d" % offset) if copied else (None, None)
        return Message(value, key, (*own, *about), timestamp)

    def __call__(self, verb: str, *arguments: str) -> Done:
        return forebay("dead-letter", verb, self.dead, *arguments, bootstrap=self.bootstrap)

    def ok(self, verb: str, *arguments: str) -> Done:
        done = self(verb, *arguments)
        assert done.code == 0, done.err
        return done

    def offsets(self, *arguments: str) -> list[int]:
        return [each["offset"] for each in self.ok("list", *arguments, "--json").json()]

    def redriven(self) -> list[int]:
        return [each["offset"] for each in self.ok("list", "--json").json() if each["redriven"]]

    def redrive(self, *arguments: str) -> list[int]:
        done = self.ok("redrive", *arguments, "--execute", "--json").json()
        return [each["offset"] for each in done["moved"]]

    def values(self, topic: str | None = None) -> list[str]:
        arguments = ("consume", topic or self.jobs, "--exit-at-end", "-f", "%p %v\\n")
        done = forebay(*arguments, bootstrap=self.bootstrap)
        assert done.code == 0, done.err
        return sorted(done.out.splitlines())


@pytest.fixture
def letters(broker: BrokerProcess, topic: str) -> Letters:
    return Letters(broker.bootstrap, topic)


@pytest.fixture
def some(letters: Letters) -> Letters:
    letters.add(
        letters.letter(10, timestamp=NOW_MS - DAY_MS),
        letters.letter(11, partition=1),
        letters.letter(12, group="other"),
        Message(b"no dead letter"),
        letters.letter(14, reason="Offset delivery count exceeded the threshold."),
    )
    return letters


def test_list(some: Letters) -> None:
    first = some.ok("list", "--json").json()[0]
    assert first == {
        "partition": 0,
        "offset": 0,
        "timestamp": NOW_MS - DAY_MS,
        "source": {"topic": some.jobs, "partition": 0, "offset": 10},
        "group": "g",
        "deliveries": 3,
        "reason": "Offset rejected by client.",
        "redriven": False,
    }
    lines = some.ok("list").out.splitlines()
    assert lines[0].split() == ["AT", "WHEN", "SOURCE", "GROUP", "DELIVERIES", "REASON", "REDRIVEN"]
    assert lines[2].split()[:1] + lines[2].split()[2:5] == ["0:1", f"{some.jobs}-1@11", "g", "3"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], [0, 1, 2, 4]),
        (["--group", "other"], [2]),
        (["--source", "{jobs}:1"], [1]),
        (["--source", "{jobs}", "--limit", "2"], [0, 1]),
        (["--reason", "EXCEEDED"], [4]),
        (["--since", "1h"], [1, 2, 4]),
        (["--at", "0:2", "--at", "0:4"], [2, 4]),
        (["--at", "0:3"], []),
    ],
    ids=str,
)
def test_filters(some: Letters, arguments: list[str], expected: list[int]) -> None:
    chosen = [argument.replace("{jobs}", some.jobs) for argument in arguments]
    assert some.offsets(*chosen) == expected
    assert some.redrive(*chosen) == expected
    assert some.redriven() == expected


@pytest.mark.parametrize(("arguments", "expected"), [(["--since", "1h"], [1, 2, 4]), (["--at", "0:3"], [])])
def test_what_a_filter_leaves_is_moved_later_and_nothing_twice(
    some: Letters, arguments: list[str], expected: list[int]
) -> None:
    assert some.redrive(*arguments) == expected
    assert some.redrive() == [offset for offset in (0, 1, 2, 4) if offset not in expected]
    assert some.redrive() == []
    assert some.values() == ["0 v10", "0 v12", "0 v14", "1 v11"]


def test_show(some: Letters) -> None:
    shown = some.ok("show", "0:1", "--json").json()
    assert (shown["key"], shown["value"], shown["copied"]) == ("k11", "v11", True)
    own = [{"name": "trace", "value": "t11"}, {"name": "__dlq.errors.group", "value": "before"}]
    assert shown["headers"] == own
    lines = some.ok("show", "0:1").out.splitlines()
    assert f"source:     {some.jobs}-1@11" in lines
    assert "header:     trace=t11" in lines
    assert lines[-1] == "v11"
    for place, problem in (("0:3", "no dead letter"), ("0:99", "no message"), ("7:0", "no partition 7")):
        assert problem in some("show", place).err
    assert some("show", "17").code == 2


def test_a_dry_run_changes_nothing(some: Letters) -> None:
    done = some.ok("redrive")
    assert "4 dead letters would be moved; nothing was changed: add --execute" in done.err
    assert some.redriven() == []
    assert some.values() == []


def test_what_is_moved_is_the_message_itself(some: Letters) -> None:
    assert some.redrive("--at", "0:1") == [1]
    (received,) = CLIENTS[0].consume(some.bootstrap, some.jobs, 1, partition=1)
    message = received.message
    assert (message.key, message.value) == (b"k11", b"v11")
    assert message.headers == (("trace", b"t11"), ("__dlq.errors.group", b"before"))


def test_to_another_topic(some: Letters) -> None:
    assert some("redrive", "--to", some.dead).code == 2
    assert "there is no topic nowhere" in some("redrive", "--to", "nowhere").err
    create_topic(some.bootstrap, f"{some.jobs}.retry", 1)
    assert some.redrive("--to", f"{some.jobs}.retry") == [0, 1, 2, 4]
    assert some.values(f"{some.jobs}.retry") == ["0 v10", "0 v11", "0 v12", "0 v14"]
    assert some.values() == []


def test_letters_without_a_copy_are_read_from_their_source(letters: Letters) -> None:
    CLIENTS[0].produce(letters.bootstrap, letters.jobs, [Message(b"a", b"k"), Message(b"b"), Message(b"c")])
    bare = [letters.letter(offset, copied=False) for offset in (2, 0, 7)]
    gone = letters.letter(0, topic="deleted", copied=False)
    letters.add(*bare, gone, letters.letter(20, partition=5))
    done = letters("redrive", "--execute", "--json")
    assert done.code == 1
    outcome = done.json()
    assert [each["offset"] for each in outcome["moved"]] == [0, 1]
    why = {each["offset"]: each["why"] for each in outcome["left"]}
    assert "no copy" in why[2]
    assert "there is no topic deleted any more" in why[3]
    assert "no such partition" in why[4]
    assert letters.values() == ["0 a", "0 a", "0 b", "0 c", "0 c"]
    assert letters.redrive("--source", f"{letters.jobs}:5", "--to", letters.jobs) == [4]
    assert letters.redriven() == [0, 1, 4]


def test_letters_older_than_positions_are_kept_are_moved_on_request(letters: Letters) -> None:
    letters.add(letters.letter(1, timestamp=NOW_MS - 9 * DAY_MS), letters.letter(2))
    for _ in range(2):  # also when a position is known
        done = letters("redrive", "--execute")
        assert (done.code, "may have been moved before" in done.err) == (1, True)
        assert letters.redriven() == [1]
    assert letters.redrive("--include-old") == [0]
    assert letters.values() == ["0 v1", "0 v2"]


def test_a_position_that_was_set_back_moves_letters_again(some: Letters) -> None:
    some.redrive()
    group = f"forebay-redrive-{some.dead}"
    reset = ("group", "reset-offsets", group, "--to-offset", "4", "--execute")
    assert forebay(*reset, bootstrap=some.bootstrap).code == 0
    assert some.redrive() == [4]


def test_what_a_group_rejects_comes_back_to_it(letters: Letters) -> None:
    settings = (
        "share.auto.offset.reset=earliest",
        "share.isolation.level=read_committed",
        f"errors.deadletterqueue.topic.name={letters.dead}",
        "errors.deadletterqueue.copy.record.enable=true",
    )
    forebay("config", "set", "group", letters.group, *settings, bootstrap=letters.bootstrap)
    CLIENTS[0].produce(letters.bootstrap, letters.jobs, [Message(b"poison")])
    acknowledge_one(letters, AcknowledgeType.REJECT)
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not letters.offsets("--group", letters.group):
        assert time.monotonic() < deadline, "no dead letter"
    assert letters.redrive("--reason", "rejected") == [0]
    assert acknowledge_one(letters, AcknowledgeType.ACCEPT) == b"poison"


def acknowledge_one(letters: Letters, kind: AcknowledgeType) -> bytes | None:
    worker = ShareConsumer(
        {
            "bootstrap.servers": letters.bootstrap,
            "group.id": letters.group,
            "share.acknowledgement.mode": "explicit",
        }
    )
    try:
        worker.subscribe([letters.jobs])
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not (messages := list(worker.poll(0.2))):
            assert time.monotonic() < deadline, "no message"
        worker.acknowledge(messages[0], kind)
        worker.commit_sync(DEADLINE_SECONDS)
        return messages[0].value()
    finally:
        worker.close()


# A redrive that kills itself: before its second transaction is committed, or right after.
KILLED = """
import os, signal, sys
from forebay.client.transactions import Transactions
from forebay.cli.main import main

commit, when, calls = Transactions.commit, sys.argv[1], []

def killed(self, progress):
    calls.append(progress)
    if len(calls) == 2:
        offsets, member = progress
        if when == "sent":
            self._raw.flush(60)
            self._raw.send_offsets_to_transaction(offsets, member, 60)
        else:
            commit(self, progress)
        os.kill(os.getpid(), signal.SIGKILL)
    commit(self, progress)

Transactions.commit = killed
main(sys.argv[2:])
"""


@pytest.mark.parametrize("when", ["sent", "committed"])
def test_a_redrive_that_is_killed_and_run_again_moves_each_once(
    letters: Letters, tmp_path: Path, when: str
) -> None:
    count = 1_800
    letters.add(*(letters.letter(n, partition=n % 2, group=f"g{n % 3}") for n in range(count)))
    script = tmp_path / "killed.py"
    script.write_text(KILLED, encoding="utf-8")
    arguments = ("dead-letter", "redrive", letters.dead, "--group", "g1", "--execute")
    done = subprocess.run(
        [sys.executable, str(script), when, *arguments],
        env=environment(letters.bootstrap),
        timeout=120,
        check=False,
    )
    assert done.returncode == -9
    before = len(letters.redriven())
    assert 0 < before < count / 3
    assert len(letters.redrive("--group", "g1")) == count // 3 - before
    assert len(letters.redrive()) == count - count // 3
    assert letters.redrive() == []
    moved = Counter(letters.values())
    assert moved == Counter(f"{n % 2} v{n}" for n in range(count))


def test_a_later_redrive_ends_the_one_before(letters: Letters, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one begins when this one has sent its letters and not committed them."""
    letters.add(*(letters.letter(n) for n in range(3)))
    later: list[list[int]] = []
    commit = Transactions.commit

    def overtaken(transactions: Transactions, progress: Progress | None) -> None:
        if not later:
            later.append([])
            later[0] = letters.redrive()
        commit(transactions, progress)

    monkeypatch.setattr(Transactions, "commit", overtaken)
    done = letters("redrive", "--execute")
    assert (done.code, later) == (1, [[0, 1, 2]])
    assert f"another redrive of {letters.dead} has begun" in done.err
    assert letters.values() == ["0 v0", "0 v1", "0 v2"]


def test_a_dead_letter_topic_that_was_made_anew_is_moved_anew(some: Letters) -> None:
    assert len(some.redrive()) == 4
    assert forebay("topic", "delete", some.dead, "--yes", bootstrap=some.bootstrap).code == 0
    create_topic(some.bootstrap, some.dead, 1)
    some.add(some.letter(30))
    assert some.redrive() == [0]
    assert "0 v30" in some.values()
