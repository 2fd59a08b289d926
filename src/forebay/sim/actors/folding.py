"""Administrators that change the number of a topic's partitions while others use it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from forebay.core.topic_partition import TopicPartition
from forebay.errors import ErrorCode
from forebay.sim.actors.actor import Actor
from forebay.sim.actors.administrators import delete_before
from forebay.sim.actors.client import Client, Failed, Refused, check
from forebay.sim.actors.reading import messages
from forebay.sim.models.messages import Model
from forebay.sim.world.places import FOLDED, FOLDED_TO
from forebay.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)

_FOLDING_S = (2.0, 20.0)
_NOT_OVER = "try again in a while"
_EMPTYING_PAUSE_S = 0.5
_FULL_S = 2.5
"""Closed partitions hold messages for this long, and must stay."""


class Folder(Actor):
    """Lets a topic get fewer partitions at some time, and in some stories more again, and fewer."""

    def __init__(self, client: Client, model: Model, topic: str, counts: Sequence[int]) -> None:
        super().__init__(client, model)
        self._topic = topic
        self._counts = counts

    async def act(self) -> None:
        done: list[int] = []
        for count in self._counts:
            await self.rest(self.chance.uniform(*_FOLDING_S) / len(self._counts))
            if done and self.stopping:
                break
            await self.resize(count)
            done.append(count)
        if len(done) > 1:  # wait until the last change is over
            await self.retry(partial(self._resize, done[-1]))

    async def resize(self, count: int) -> None:
        self.model.folds.changes += 1
        await self.retry(partial(self._resize, count))

    async def _resize(self, count: int) -> None:
        wanted = CreatePartitionsTopic(name=self._topic, count=count, assignments=None)
        request = CreatePartitionsRequest(topics=[wanted], timeout_ms=5000)
        (result,) = (await self.client.ask_any(request, CreatePartitionsResponse)).results
        code = ErrorCode(result.error_code)
        self.world.note("admin", f"{self._topic} to {count} partitions: {code.name}")
        if code is not ErrorCode.INVALID_PARTITIONS:
            check(code)
            self.model.topics.changes_count += 1
        elif _NOT_OVER in (result.error_message or ""):
            raise Failed("the last change is not over")
        # Else an earlier attempt was not answered.


class Emptier(Folder):
    """Folds a topic soon, reads what the closed partitions hold, and deletes it, until they are gone.

    Like retention; but the messages were read before, so the model knows them.
    """

    async def act(self) -> None:
        await self.rest(1.0)
        await self.resize(FOLDED_TO)
        closed, left = FOLDED[FOLDED_TO:], len(FOLDED)
        self.model.topics.shrinks(self._topic, FOLDED_TO)
        await asyncio.sleep(_FULL_S)
        while left > FOLDED_TO:
            for at in closed:
                try:
                    await self._empty(at)
                except (Failed, Refused):
                    # One that never had a message is removed without being emptied.
                    self.model.groups.may_forget(at)
                    self.client.forget(at)
            await self.rest(_EMPTYING_PAUSE_S)
            left = await self.retry(self._count)
        for at in closed:
            self.model.groups.may_forget(at)
            self.model.folds.removed.note_gone(at)
        self.world.note("admin", f"{self._topic} has {left} partitions")

    async def _count(self) -> int:
        found = await self.client.metadata([self._topic])
        check(found.topics[0].error_code)
        return len(found.topics[0].partitions)

    async def _empty(self, at: TopicPartition) -> None:
        """Delete messages that no open transaction includes, once they are read."""
        removed = self.model.folds.removed
        end = await self._read(at, removed.positions.get(at, 0))
        # From now on the partition may be removed, and with it the groups' commits for it.
        self.model.groups.may_forget(at)
        leader, _ = await self.client.leader(at)
        await delete_before(self, leader, at, end)

    async def _read(self, at: TopicPartition, start: int) -> int:
        contents: list[dict[int, bytes]] = []
        end = -1
        for committed in (False, True):
            content: dict[int, bytes] = {}
            offset = start
            while True:
                found = await self.client.fetch(at, offset, committed=committed, max_wait_ms=10)
                shown, offset = messages(found, offset, committed=committed)
                content.update(shown)
                if offset >= (found.high_watermark if end < 0 else end):
                    break
                if committed and offset >= found.last_stable_offset:
                    raise Failed("a transaction is open")
            contents.append(content)
            end = offset if end < 0 else end
        self.model.folds.removed.add(at, end, *contents)
        return end
