"""A member of a group that notes what it is given and what is taken from it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from support.clients.kafka_clients import DEADLINE_SECONDS, confluent_consumer


class Member:
    def __init__(self, bootstrap: str, topic: str, **settings: Any) -> None:
        self.given: list[set[int]] = []
        self.taken: list[set[int]] = []
        own: dict[str, Any] = {"session_timeout_ms": 30_000, "heartbeat_interval_ms": 100}
        if settings.get("group_protocol") == "consumer":
            own = {}
        quick = {"topic_metadata_refresh_interval_ms": 200, "auto_offset_reset": "earliest"}
        self.consumer = confluent_consumer(
            bootstrap, **{"group_id": topic.lstrip("^"), **quick, **own, **settings}
        )
        self.consumer.subscribe([topic], on_assign=self._give, on_revoke=self._take)

    def _give(self, _consumer: Consumer, places: list[TopicPartition]) -> None:
        self.given.append({place.partition for place in places})

    def _take(self, _consumer: Consumer, places: list[TopicPartition]) -> None:
        self.taken.append({place.partition for place in places})

    @property
    def owns(self) -> set[tuple[str, int]]:
        return {(place.topic, place.partition) for place in self.consumer.assignment()}

    @property
    def numbers(self) -> set[int]:
        return {partition for _, partition in self.owns}


def poll_until(condition: Callable[[], bool], *members: Member) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, [member.owns for member in members]
        for member in members:
            member.consumer.poll(0.02)
