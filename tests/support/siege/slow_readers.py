"""Attackers that ask for much and read nothing of it."""

from __future__ import annotations

import asyncio
from collections import Counter

from forebay.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from support.siege.attack import Attack, first_problem
from support.siege.connection import Stream, frame
from support.siege.queries import fetch
from support.siege.target import ANALYST, NOBODY, TEXTS, Target

_NAMES = 5_000
_REQUESTS = 50
_RECEIVE_BUFFER = 4096
_READS = 60
_READ_EVERY_S = 0.5


class SlowReaders(Attack):
    """Half of them fetch messages, the others make the broker list topics that do not exist. Answers are read
    a few bytes at a time."""

    logged_in = True
    name, connections = "slow-readers", 100

    def __init__(self, target: Target, done: Counter[str], share: float) -> None:
        super().__init__(target, done, share)
        topics = [MetadataRequestTopic(name=f"nothing-{number}") for number in range(_NAMES)]
        metadata = frame(MetadataRequest(topics=topics, allow_auto_topic_creation=False), 9)
        messages = frame(fetch(TEXTS, range(len(target.open_doors))), 11)
        self._asked = ((NOBODY, metadata), (ANALYST, messages))

    async def once(self, number: int) -> None:
        user, asked = self._asked[number // 2 % 2]
        stream = await self.enter_as(user, number, receive_buffer=_RECEIVE_BUFFER)
        try:
            with first_problem():
                async with asyncio.TaskGroup() as group:
                    asking = group.create_task(self._ask(stream, asked))
                    for _ in range(_READS):
                        await asyncio.sleep(_READ_EVERY_S)
                        await stream.receive(1)
                    asking.cancel()
        finally:
            stream.close()

    async def _ask(self, stream: Stream, asked: bytes) -> None:
        for _ in range(_REQUESTS):
            await stream.send(asked)
            self.count("requests")
