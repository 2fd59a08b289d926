"""Load over TLS is stored like any other, and requests that vary are all looked at by the access rules."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench import rounds, security
from bench.client import Client
from bench.frames import B200_BATCH, PRODUCE_VERSION, produce_request
from bench.server import BenchError, ForebayServer
from bench.tls import ForebayWithTls, OverTls

from forebay.errors import ErrorCode


def test_load_goes_over_tls_and_arrives(tmp_path: Path) -> None:
    with ForebayWithTls(tmp_path, "broker") as server:
        assert server.over_tls.way_in.address != server.address
        assert rounds.produce_200b(server.over_tls, 2).requests > 0
        plain_port = server.address[1]
        over_plain = OverTls(server, plain_port, server.certificates)
        with pytest.raises(BenchError, match="a load generator failed"):
            rounds.produce_200b(over_plain, 1)


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
