"""Followers of a leader that has no fetch session for them: they follow, and leave it some rest."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from forebay.broker.replication.follower_tracking import Followers
from forebay.errors import ErrorCode
from support.brokers.local_cluster import local_cluster
from support.clients.wire_client import batch, create_topic, only_partition, produce

PRODUCE, CREATE_TOPICS = 9, 7
TOPIC = "t"
IDLE_S = 1.0
FETCHES_MAX = 60
"""Two followers and a pause of 200 ms make ten; without the pause there are thousands."""


async def test_an_idle_leader_without_sessions_is_not_asked_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetches = 0
    heard_of = Followers.heard_of

    def counted(self: Followers, *which: Any) -> None:
        nonlocal fetches
        fetches += 1
        heard_of(self, *which)

    monkeypatch.setattr(Followers, "heard_of", counted)
    async with local_cluster(tmp_path, {"max.incremental.fetch.session.cache.slots": "0"}) as cluster:
        (made,) = (await cluster.ask(1, create_topic(TOPIC), CREATE_TOPICS)).topics
        assert made.error_code == ErrorCode.NONE
        await cluster.in_sync(TOPIC)
        fetches = 0
        await asyncio.sleep(IDLE_S)
        assert 0 < fetches < FETCHES_MAX
        request = produce(TOPIC, batch(b"message"), acks=-1)
        answer = only_partition(await cluster.ask(cluster.leader(TOPIC), request, PRODUCE))
        assert answer.error_code == ErrorCode.NONE
