"""What the administrative handlers share: carrying a plan out, or only looking at what it would bring."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING, TypeVar

from forebay.coordination.metadata import Plan
from forebay.core.image import ClusterImage
from forebay.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from forebay.broker.broker import Broker

T = TypeVar("T", bound=Hashable)


async def carry_out(broker: Broker, plan: Plan, *, validate_only: bool) -> ClusterImage:
    """The image with the plan carried out; with validate_only only the returned image shows it."""
    if validate_only:
        return broker.image.apply(plan(broker.image))
    image = await broker.metadata.change(plan)
    await broker.replicas.all_open()
    return image


async def attempt(broker: Broker, plan: Plan, *, validate_only: bool) -> tuple[ErrorCode, str | None]:
    """Carry a plan out, for who only has to tell how it went."""
    try:
        await carry_out(broker, plan, validate_only=validate_only)
    except KafkaError as error:
        return error.code, error.message
    return ErrorCode.NONE, None


def named_twice(names: Iterable[T]) -> frozenset[T]:
    """Names that one request must not repeat: which of the two should it have been?"""
    return frozenset(name for name, count in Counter(names).items() if count > 1)


def repeated(name: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, f"{name!r} is in the request more than once")


def new_topic_id(broker: Broker) -> bytes:
    return broker.ports.entropy(16)
