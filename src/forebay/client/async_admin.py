"""The admin for asyncio: each call in a thread, of which the loop has a pool."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

from confluent_kafka.admin import AdminClient

from forebay.client.admin import Admin, GroupInfo, Partition
from forebay.client.presets import Settings


class AsyncAdmin:
    """As `Admin`, awaited."""

    def __init__(self, servers: str | Sequence[str], *, settings: Settings | None = None) -> None:
        self._sync = Admin(servers, settings=settings)

    @property
    def raw(self) -> AdminClient:
        return self._sync.raw

    async def topics(self) -> dict[str, int]:
        return await asyncio.to_thread(self._sync.topics)

    async def create_topic(
        self,
        name: str,
        *,
        partitions: int | None = None,
        replication_factor: int | None = None,
        config: Mapping[str, str] | None = None,
        exist_ok: bool = False,
    ) -> None:
        await asyncio.to_thread(
            self._sync.create_topic,
            name,
            partitions=partitions,
            replication_factor=replication_factor,
            config=config,
            exist_ok=exist_ok,
        )

    async def delete_topic(self, name: str, *, missing_ok: bool = False) -> None:
        await asyncio.to_thread(self._sync.delete_topic, name, missing_ok=missing_ok)

    async def add_partitions(self, topic: str, total: int) -> None:
        await asyncio.to_thread(self._sync.add_partitions, topic, total)

    async def topic_config(self, topic: str) -> dict[str, str]:
        return await asyncio.to_thread(self._sync.topic_config, topic)

    async def set_topic_config(self, topic: str, config: Mapping[str, str | None]) -> None:
        await asyncio.to_thread(self._sync.set_topic_config, topic, config)

    async def start_offsets(self, topic: str) -> dict[int, int]:
        return await asyncio.to_thread(self._sync.start_offsets, topic)

    async def end_offsets(self, topic: str) -> dict[int, int]:
        return await asyncio.to_thread(self._sync.end_offsets, topic)

    async def groups(self) -> list[GroupInfo]:
        return await asyncio.to_thread(self._sync.groups)

    async def committed(self, group: str) -> dict[Partition, int]:
        return await asyncio.to_thread(self._sync.committed, group)

    async def lag(self, group: str) -> dict[Partition, int]:
        return await asyncio.to_thread(self._sync.lag, group)

    async def set_committed(self, group: str, offsets: Mapping[Partition, int]) -> None:
        await asyncio.to_thread(self._sync.set_committed, group, offsets)

    async def delete_group(self, group: str, *, missing_ok: bool = False) -> None:
        await asyncio.to_thread(self._sync.delete_group, group, missing_ok=missing_ok)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """As with `Admin`, nothing is left to be closed."""
