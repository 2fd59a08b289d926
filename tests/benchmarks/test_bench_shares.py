"""The members of share groups that the benchmark drives: what they count is what the broker has finished."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.rounds import fresh_topic
from bench.server import BenchError, ForebayServer, Server
from bench.share_members import count, finished_records, members_of, new_share_group, topic_id_of
from bench.shares import CYCLE_BATCH, CYCLE_RECORDS, deliveries


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Server]:
    with ForebayServer(tmp_path, "broker") as server:
        yield server


def test_each_record_is_accepted_once_and_counted(broker: Server) -> None:
    with fresh_topic(broker, 2) as (client, topic):
        for partition in range(2):
            client.fill(topic, 3, CYCLE_BATCH, partition)
        group = new_share_group(client, topic, 2)
        crew = members_of(broker.address, group, topic_id_of(client, topic), members=4, partitions=2)
        for _ in range(2):
            for member in crew:
                member.cycle(records=CYCLE_RECORDS, wait_ms=3_000)
        assert sum(count(member.held) for member in crew) == 2 * CYCLE_RECORDS
        assert finished_records(client, group) == 4 * CYCLE_RECORDS
        for member in crew:
            member.leave()
            member.client.close()
        assert finished_records(client, group) == 6 * CYCLE_RECORDS
        assert sum(member.accepted for member in crew) == 6 * CYCLE_RECORDS


def test_a_record_is_accepted_apart_from_its_neighbours(broker: Server) -> None:
    with fresh_topic(broker) as (client, topic):
        client.fill(topic, 1, CYCLE_BATCH)
        group = new_share_group(client, topic, 1)
        (member,) = members_of(broker.address, group, topic_id_of(client, topic), members=1, partitions=1)
        with member.client:
            assert member.cycle(records=CYCLE_RECORDS, wait_ms=10_000) == CYCLE_RECORDS
            member.accept({0: [(0, 0), (2, 2)]})
            assert finished_records(client, group) == 1


def test_there_is_a_member_for_every_partition() -> None:
    with pytest.raises(BenchError, match="a member for every partition"):
        members_of(("127.0.0.1", 1), "g", bytes(16), members=2, partitions=3)


def test_a_delivery_is_timed(broker: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.shares.DELIVERIES", 3)
    monkeypatch.setattr("bench.shares.WARM_UP", 2)
    with fresh_topic(broker) as (client, topic):
        assert deliveries(broker.address, topic).p50_us > 0
        assert client.end_offset(topic) == 5
