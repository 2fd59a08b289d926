"""Attackers with a login and no rights: everything that they ask for is refused, which has its cost too."""

from __future__ import annotations

import asyncio
import itertools
import struct
from collections import Counter
from collections.abc import Callable
from functools import partial
from random import Random

from forebay.wire.messages.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from forebay.wire.messages.describe_groups import DescribeGroupsRequest
from forebay.wire.messages.incremental_alter_configs import AlterConfigsResource as IncrementalResource
from forebay.wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
)
from forebay.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from support.siege.attack import Attack, first_problem, swallow
from support.siege.connection import frame
from support.siege.structures import every_request, wide_request
from support.siege.target import NOBODY, ORDERS, Target

NAMES = (1_000_000, 99_000)
"""Far too many, and as many as a broker takes by default."""
CONFIGS = ELEMENTS = 20_000
REQUEST_BYTES_MAX = 104_857_600
_TOPIC = 2


class ExpensiveRequests(Attack):
    """Sends the same few requests again and again, as fast as the broker takes them."""

    logged_in = True
    requests: tuple[Callable[[], bytes], ...]

    def __init__(self, target: Target, done: Counter[str], share: float) -> None:
        super().__init__(target, done, share)
        self._frames = [make() for make in self.requests]

    async def once(self, number: int) -> None:
        stream = await self.enter_as(NOBODY, number)
        try:
            with first_problem():
                async with asyncio.TaskGroup() as group:
                    group.create_task(swallow(stream))
                    while True:
                        for data in self._frames[number // 2 % len(self._frames) :]:
                            await stream.send(data)
                            self.count("requests")
                            self.count("bytes", len(data))
        finally:
            stream.close()


def metadata_names(count: int) -> bytes:
    """Topics of one letter, all the same: 3 bytes each in version 9."""
    topics = [MetadataRequestTopic(name="a")] * count
    return frame(MetadataRequest(topics=topics, allow_auto_topic_creation=False), 9)


def group_names(count: int) -> bytes:
    return frame(DescribeGroupsRequest(groups=["g"] * count), 5)


def config_names() -> bytes:
    configs = [AlterableConfig(name=f"config-{number}", value="1") for number in range(CONFIGS)]
    resource = AlterConfigsResource(resource_type=_TOPIC, resource_name=ORDERS, configs=configs)
    return frame(AlterConfigsRequest(resources=[resource]), 1)


def resource_names() -> bytes:
    resources = [
        IncrementalResource(resource_type=_TOPIC, resource_name=f"t{number}", configs=[])
        for number in range(CONFIGS)
    ]
    return frame(IncrementalAlterConfigsRequest(resources=resources), 1)


class Names(ExpensiveRequests):
    """Metadata and DescribeGroups with megabytes of names."""

    name, connections = "names", 6
    requests = tuple(partial(make, count) for count in NAMES for make in (metadata_names, group_names))


class Configs(ExpensiveRequests):
    """AlterConfigs with 20,000 names, and with 20,000 topics."""

    name, connections = "configs", 6
    requests = (config_names, resource_names)


class Hoard(Attack):
    """All but the last bytes of requests of 100 MB, on a few connections."""

    logged_in = True
    name, connections = "hoard", 10
    _chunk = bytes(1 << 20)

    async def once(self, number: int) -> None:
        stream = await self.enter_as(NOBODY, 2 * number)
        try:
            await stream.send(struct.pack(">i", REQUEST_BYTES_MAX))
            for _ in range(REQUEST_BYTES_MAX // len(self._chunk) - 1):
                await stream.send(self._chunk)
                self.count("bytes", len(self._chunk))
            await swallow(stream)
        finally:
            stream.close()


class WideRequests(Attack):
    """Every API, with a list of 20,000 elements. What a broker ends a connection for, it is sent on the next
    one again."""

    logged_in = True
    name, connections = "wide-requests", 12

    def __init__(self, target: Target, done: Counter[str], share: float) -> None:
        super().__init__(target, done, share)
        newest = dict(every_request())
        made = [wide_request(Random(0), request, version, ELEMENTS) for request, version in newest.items()]
        self._frames = [struct.pack(">i", len(data)) + data for data in made if data is not None]

    async def once(self, number: int) -> None:
        stream = await self.enter_as(NOBODY, number)
        try:
            with first_problem():
                async with asyncio.TaskGroup() as group:
                    group.create_task(swallow(stream))
                    for at in itertools.count(number):
                        data = self._frames[at % len(self._frames)]
                        await stream.send(data)
                        self.count("requests")
                        self.count("bytes", len(data))
        finally:
            stream.close()
