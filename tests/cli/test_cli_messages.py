"""Producing and consuming by the command line, against a real broker."""

from __future__ import annotations

import base64
import contextlib
import signal
import subprocess
import time
from pathlib import Path

import pytest

from support.brokers.broker_process import BrokerProcess
from support.brokers.forebay_command import Done, command, environment, forebay, forebay_process


@pytest.fixture
def bootstrap(broker: BrokerProcess) -> str:
    return broker.bootstrap


def ok(done: Done) -> Done:
    assert done.code == 0, done.err
    return done


def consume_all(bootstrap: str, topic: str, *options: str) -> Done:
    return ok(forebay("consume", topic, "--exit-at-end", *options, bootstrap=bootstrap))


def test_lines_in_lines_out(bootstrap: str, topic: str) -> None:
    done = ok(forebay_process("produce", topic, bootstrap=bootstrap, stdin="one\ntwo\n\nfour\n"))
    assert done.err == f"produced 4 messages to {topic}\n"
    assert done.out == ""
    assert consume_all(bootstrap, topic).out == "one\ntwo\n\nfour\n"


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_compression(bootstrap: str, topic: str, codec: str) -> None:
    text = "".join(f"message {number} {'x' * 50}\n" for number in range(300))
    ok(forebay("produce", topic, "--compression", codec, bootstrap=bootstrap, stdin=text))
    assert consume_all(bootstrap, topic).out == text


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_acks(bootstrap: str, topic: str, acks: str) -> None:
    ok(forebay("topic", "create", topic, bootstrap=bootstrap))
    ok(forebay("produce", topic, "--acks", acks, bootstrap=bootstrap, stdin="a\nb\n"))
    assert ok(forebay("consume", topic, "--count", "2", bootstrap=bootstrap)).out == "a\nb\n"


def test_keys_headers_nulls_and_bytes_as_json(bootstrap: str, topic: str) -> None:
    options = ["-K", ":", "--header", "a=1", "--header", "a=2", "--null-marker", "NULL"]
    ok(forebay("produce", topic, *options, bootstrap=bootstrap, stdin=b"k:v\nNULL:x\nk2:NULL\nraw:\xff\n"))
    first, second, third, fourth = consume_all(bootstrap, topic, "--json").json_lines()
    assert (first["key"], first["value"], first["offset"], first["partition"]) == ("k", "v", 0, 0)
    assert first["headers"] == [{"name": "a", "value": "1"}, {"name": "a", "value": "2"}]
    assert first["timestamp"] > 1_700_000_000_000
    assert (second["key"], second["value"]) == (None, "x")
    assert (third["key"], third["value"]) == ("k2", None)
    assert base64.b64decode(fourth["value_base64"]) == b"\xff"


def test_partition_and_format(bootstrap: str, topic: str) -> None:
    ok(forebay("topic", "create", topic, "--partitions", "3", bootstrap=bootstrap))
    ok(forebay("produce", topic, "--partition", "2", "--key", "k", bootstrap=bootstrap, stdin="v\n"))
    assert consume_all(bootstrap, topic, "-f", r"%t %p %o %k %v %S\n").out == f"{topic} 2 0 k v 1\n"
    assert consume_all(bootstrap, topic, "--partition", "0", "--partition", "1").out == ""
    done = forebay("consume", topic, "--partition", "7", bootstrap=bootstrap)
    assert done.code == 1
    assert "no partition 7: it has 0 to 2" in done.err


def test_produce_to_a_partition_that_is_not_there(bootstrap: str, topic: str) -> None:
    ok(forebay("topic", "create", topic, bootstrap=bootstrap))
    done = forebay("produce", topic, "--partition", "9", bootstrap=bootstrap, stdin="v\n")
    assert done.code == 1
    assert "no such partition" in done.err


def test_where_to_begin(bootstrap: str, topic: str) -> None:
    ok(forebay("produce", topic, bootstrap=bootstrap, stdin="a\nb\nc\nd\n"))
    assert consume_all(bootstrap, topic, "--from", "2").out == "c\nd\n"
    assert consume_all(bootstrap, topic, "--from", "-1").out == "d\n"
    assert consume_all(bootstrap, topic, "--from", "-100").out == "a\nb\nc\nd\n"
    assert consume_all(bootstrap, topic, "--from", "end").out == ""
    assert consume_all(bootstrap, topic, "--from", "1h").out == "a\nb\nc\nd\n"
    assert consume_all(bootstrap, topic, "--from", "2099-01-01").out == ""
    assert consume_all(bootstrap, topic, "--from", "1", "--count", "2").out == "b\nc\n"


def test_from_an_offset_beyond_the_end_only_what_comes_there(bootstrap: str, topic: str) -> None:
    ok(forebay("produce", topic, bootstrap=bootstrap, stdin="a\nb\nc\n"))
    assert consume_all(bootstrap, topic, "--from", "3").out == ""
    assert consume_all(bootstrap, topic, "--from", "100").out == ""
    assert ok(forebay("consume", topic, "--from", "100", "--timeout", "1", bootstrap=bootstrap)).out == ""
    child = subprocess.Popen(
        command("consume", topic, "--from", "4", "--count", "1"),
        stdout=subprocess.PIPE,
        env=environment(bootstrap),
        text=True,
    )
    try:
        line = None
        while line is None:  # offset 3 is not printed, and perhaps comes before the command has begun
            ok(forebay("produce", topic, bootstrap=bootstrap, stdin="next\n"))
            with contextlib.suppress(subprocess.TimeoutExpired):
                line, _ = child.communicate(timeout=0.5)
        assert line == "next\n"
    finally:
        child.kill()
        child.wait()


def test_from_beginning_as_kafka_s_tools_have_it(bootstrap: str, topic: str) -> None:
    ok(forebay("produce", topic, bootstrap=bootstrap, stdin="a\nb\n"))
    assert consume_all(bootstrap, topic, "--from-beginning").out == "a\nb\n"
    done = forebay("consume", topic, "--from-beginning", "--from", "end", bootstrap=bootstrap)
    assert done.code == 2
    assert "exclude each other" in done.err


def test_from_a_time_between_two_messages(bootstrap: str, topic: str) -> None:
    ok(forebay("produce", topic, bootstrap=bootstrap, stdin="early\n"))
    (early,) = consume_all(bootstrap, topic, "--json").json_lines()
    while time.time_ns() // 1_000_000 <= early["timestamp"] + 1:
        time.sleep(0.001)
    ok(forebay("produce", topic, bootstrap=bootstrap, stdin="late\n"))
    assert consume_all(bootstrap, topic, "--from", f"@{early['timestamp'] + 1}").out == "late\n"
    assert consume_all(bootstrap, topic, "--from", f"@{early['timestamp']}").out == "early\nlate\n"


def test_the_end_of_an_empty_topic(bootstrap: str, topic: str) -> None:
    ok(forebay("topic", "create", topic, "--partitions", "2", bootstrap=bootstrap))
    assert consume_all(bootstrap, topic).out == ""
    assert ok(forebay("consume", topic, "--timeout", "0.2", bootstrap=bootstrap)).out == ""


def test_from_a_file(bootstrap: str, topic: str, tmp_path: Path) -> None:
    file = tmp_path / "lines.txt"
    file.write_text("".join(f"{number}\n" for number in range(5000)))
    done = ok(forebay("produce", topic, "--file", str(file), bootstrap=bootstrap))
    assert done.err == f"produced 5000 messages to {topic}\n"
    assert consume_all(bootstrap, topic).out == file.read_text()


def test_a_message_that_is_too_large_says_so(bootstrap: str, topic: str) -> None:
    ok(forebay("topic", "create", topic, "--config", "max.message.bytes=1000", bootstrap=bootstrap))
    done = forebay("produce", topic, bootstrap=bootstrap, stdin="x" * 5000 + "\n")
    assert done.code == 1
    assert "MSG_SIZE_TOO_LARGE" in done.err
    assert "1 failed" in done.err


def consumer(bootstrap: str, topic: str, *options: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command("consume", topic, *options),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(bootstrap),
    )


def test_waits_for_more_until_interrupted(bootstrap: str, topic: str) -> None:
    ok(forebay("produce", topic, bootstrap=bootstrap, stdin="first\n"))
    child = consumer(bootstrap, topic)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == b"first\n"
        ok(forebay("produce", topic, bootstrap=bootstrap, stdin="second\n"))
        assert child.stdout.readline() == b"second\n"
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=60)
    finally:
        child.kill()
        child.wait()
    assert (child.returncode, out, err) == (0, b"", b"")


def test_a_reader_that_has_enough_ends_the_consume(bootstrap: str, topic: str) -> None:
    ok(forebay("produce", topic, bootstrap=bootstrap, stdin="".join(f"line {n}\n" for n in range(20_000))))
    child = consumer(bootstrap, topic)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == b"line 0\n"
        child.stdout.close()
        _, err = child.communicate(timeout=60)
    finally:
        child.kill()
        child.wait()
    assert (child.returncode, err) == (0, b"")


def test_the_segment_on_disk_can_be_dumped(broker: BrokerProcess, topic: str) -> None:
    ok(forebay("produce", topic, "--compression", "zstd", bootstrap=broker.bootstrap, stdin="a\nb\nc\n"))
    (segment,) = sorted((broker.data / f"{topic}-0").glob("*.log"))
    batches = ok(forebay("log", "dump", str(segment), "--records", "--json")).json_lines()
    assert all(batch["crc_ok"] and batch["codec"] in ("zstd", "none") for batch in batches)
    assert [record["value"] for batch in batches for record in batch["records"]] == ["a", "b", "c"]
