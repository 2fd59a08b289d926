"""The admin for asyncio: each call runs in a thread of the loop's pool."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from confluent_kafka.admin import AdminClient

from forebay.client.admin import Admin
from forebay.client.presets import Settings

P = ParamSpec("P")
T = TypeVar("T")


def _awaited(
    method: Callable[Concatenate[Admin, P], T],
) -> Callable[Concatenate[AsyncAdmin, P], Coroutine[Any, Any, T]]:
    """The same method of `Admin`, with the same parameters, in a thread."""

    @functools.wraps(method)
    async def call(self: AsyncAdmin, /, *args: P.args, **options: P.kwargs) -> T:
        return await asyncio.to_thread(method, self._sync, *args, **options)

    return call


class AsyncAdmin:
    """Like `Admin`, awaited."""

    def __init__(self, servers: str | Sequence[str], *, settings: Settings | None = None) -> None:
        self._sync = Admin(servers, settings=settings)

    @property
    def raw(self) -> AdminClient:
        return self._sync.raw

    topics = _awaited(Admin.topics)
    create_topic = _awaited(Admin.create_topic)
    delete_topic = _awaited(Admin.delete_topic)
    add_partitions = _awaited(Admin.add_partitions)
    topic_config = _awaited(Admin.topic_config)
    set_topic_config = _awaited(Admin.set_topic_config)
    start_offsets = _awaited(Admin.start_offsets)
    end_offsets = _awaited(Admin.end_offsets)
    create_view = _awaited(Admin.create_view)
    views = _awaited(Admin.views)
    delete_view = _awaited(Admin.delete_view)
    groups = _awaited(Admin.groups)
    group_config = _awaited(Admin.group_config)
    set_group_config = _awaited(Admin.set_group_config)
    committed = _awaited(Admin.committed)
    lag = _awaited(Admin.lag)
    set_committed = _awaited(Admin.set_committed)
    delete_group = _awaited(Admin.delete_group)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exception: object) -> None:
        """As with `Admin`, there is nothing to close."""
