"""What the administrative handlers share: carrying a plan out, or only looking at what it would bring."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

from forebay.config import TopicConfig
from forebay.coordination.metadata import Plan
from forebay.core.image import ClusterImage
from forebay.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from forebay.broker.broker import Broker

log = logging.getLogger(__name__)

T = TypeVar("T", bound=Hashable)


async def carry_out(broker: Broker, plan: Plan, *, validate_only: bool) -> ClusterImage:
    """The image with the plan carried out; with validate_only only the returned image shows it."""
    if validate_only:
        return broker.image.apply(plan(broker.image))
    image = await broker.metadata.change(plan)
    await broker.replicas.all_open()
    return image


def note_created(broker: Broker, image: ClusterImage, name: str) -> None:
    """Say it at once when a new topic stops with its first broker: later is too late."""
    topic = image.topics.get(name)
    if topic is None:
        return
    config = TopicConfig.resolve(broker.config, image.topic_config(name).overrides)
    replicas = topic.replication_factor
    if config.needs_all(replicas):
        log.warning(
            "acks=all will be refused whenever one replica of a new topic is away",
            extra={"topic": name, "replicas": replicas, "min_insync": config.insync_replicas_min(replicas)},
        )


class ConfigResource(Protocol):
    """What a request wants to alter, in either of the two messages for it."""

    resource_type: int
    resource_name: str


R = TypeVar("R", bound=ConfigResource)


async def alter_each(
    resources: Sequence[R], alter: Callable[[R], Awaitable[None]]
) -> list[tuple[R, ErrorCode, str | None]]:
    """Each resource stands or falls alone: how it went, with what to tell the client."""
    twice = named_twice((item.resource_type, item.resource_name) for item in resources)
    outcomes: list[tuple[R, ErrorCode, str | None]] = []
    for item in resources:
        try:
            if (item.resource_type, item.resource_name) in twice:
                raise repeated(item.resource_name)
            await alter(item)
            outcomes.append((item, ErrorCode.NONE, None))
        except KafkaError as error:
            outcomes.append((item, error.code, error.message))
        except Exception:
            log.exception("settings could not be altered", extra={"of": item.resource_name})
            outcomes.append((item, ErrorCode.UNKNOWN_SERVER_ERROR, "see the broker's log"))
    return outcomes


def named_twice(names: Iterable[T]) -> frozenset[T]:
    """Names that one request must not repeat: which of the two should it have been?"""
    return frozenset(name for name, count in Counter(names).items() if count > 1)


def repeated(name: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, f"{name!r} is in the request more than once")


def new_topic_id(broker: Broker) -> bytes:
    return broker.ports.entropy(16)
