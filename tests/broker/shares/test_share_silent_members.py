"""A member that is paused or killed stays in its group for a while. Its partitions have another member."""

from __future__ import annotations

import signal
from collections import Counter

import pytest

from forebay.wire.messages.share_group_describe import ShareGroupDescribeRequest
from support.brokers.broker_process import BrokerProcess
from support.clients.share_member import configure
from support.clients.share_worker import Worker, holding, work_until
from support.clients.wire_client import WireClient, append, batch, create

MEMBERS = 3
VALUES = [b"%d" % n for n in range(90)]


def settled_members(client: WireClient, group: str) -> int:
    """How many members have partitions, and know of each other."""
    group_ = client.call(ShareGroupDescribeRequest(group_ids=[group]), 1).groups[0]
    settled = (each for each in group_.members if each.member_epoch == group_.group_epoch)
    return sum(bool(each.assignment.topic_partitions) for each in settled)


@pytest.mark.parametrize("how", [signal.SIGSTOP, signal.SIGKILL])
def test_the_jobs_of_a_silent_member_do_not_wait_for_its_session(
    broker: BrokerProcess, topic: str, how: signal.Signals
) -> None:
    """As many members as partitions. A paused member keeps its connection, a killed one does not."""
    with WireClient(broker.bootstrap) as client:
        create(client, topic, MEMBERS)
        configure(
            client,
            topic,
            share_record_lock_duration_ms="2000",
            share_session_timeout_ms="60000",
            share_heartbeat_interval_ms="500",
        )
    with (
        WireClient(broker.bootstrap) as client,
        holding(broker.bootstrap, topic, topic) as silent,
        Worker(broker.bootstrap, topic, topic) as one,
        Worker(broker.bootstrap, topic, topic) as two,
    ):
        work_until(lambda: settled_members(client, topic) == MEMBERS, one, two)
        for n in range(0, len(VALUES), 5):
            append(client, topic, batch(*VALUES[n : n + 5]), partition=n % MEMBERS)
        assert silent.stdout is not None
        assert int(silent.stdout.readline()) > 0
        silent.send_signal(how)
        work_until(lambda: len(one.accepted + two.accepted) == len(VALUES), one, two)
        assert one.accepted + two.accepted == Counter(VALUES)
        assert settled_members(client, topic) == MEMBERS, "the group still counts on the silent one"
