"""Load over TLS is stored like any other, and requests that vary are all looked at by the access rules."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from bench import rounds, security
from bench.client import Client
from bench.frames import B200_BATCH, KB16_BATCH, PRODUCE_VERSION, fetch_stream, produce_request
from bench.load import run_load
from bench.server import BenchError, ForebayServer
from bench.tls import ForebayWithTls, OverTls
from bench.tls_records import RecordCounter

from forebay.errors import ErrorCode


def test_load_goes_over_tls_and_arrives(tmp_path: Path) -> None:
    with ForebayWithTls(tmp_path, "broker") as server:
        assert server.over_tls.way_in.address != server.address
        assert rounds.produce_200b(server.over_tls, 2).requests > 0
        plain_port = server.address[1]
        over_plain = OverTls(server, plain_port, server.certificates)
        with pytest.raises(BenchError, match="a load generator failed"):
            rounds.produce_200b(over_plain, 1)


def test_load_over_tls_is_counted_without_decrypting_it(tmp_path: Path) -> None:
    with ForebayWithTls(tmp_path, "broker") as server, Client(server.address) as client:
        client.create_topic("bench-read")
        client.fill("bench-read", 20, KB16_BATCH)
        stream = fetch_stream("bench-read", [0], KB16_BATCH, seconds=0.2)
        streams = [replace(stream, decrypts=decrypts) for decrypts in (True, False)]
        for each in streams:  # a reply that is not as long as the decrypted first one would be an error
            assert run_load(server.over_tls, [each]).requests > 10


@pytest.mark.parametrize("size", [1, 4, 5, 6, 7, 100, 1 << 20])
def test_records_are_counted_however_they_are_cut(size: int) -> None:
    contents = [0, 1, 100, 16384, 3]
    records = b"".join(b"\x17\x03\x03" + (n + 17).to_bytes(2, "big") + bytes(n + 17) for n in contents)
    counter = RecordCounter()
    pieces = (memoryview(records)[start : start + size] for start in range(0, len(records), size))
    assert sum(map(counter.count, pieces)) == sum(contents)
    with pytest.raises(BenchError, match="type 21"):
        counter.count(memoryview(b"\x15\x03\x03\x00\x02"))


def test_rules_let_the_rounds_through_and_nothing_else(tmp_path: Path) -> None:
    with ForebayServer(tmp_path, "rules", *security.RULE_SETTINGS) as server:
        security.add_rules(server)
        assert security.produce_varied(server).requests > 0
        with Client(server.address) as client:
            client.create_topic("bench-denied")
            security.add(server, [security.rule("bench-", "User:ANONYMOUS", allowed=False)])
            answer = client.ask(produce_request("bench-denied", B200_BATCH), PRODUCE_VERSION)
        code = answer.responses[0].partition_responses[0].error_code
        assert code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
