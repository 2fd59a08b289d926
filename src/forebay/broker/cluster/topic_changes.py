"""Changes of topics and settings on request: carried out, or only checked.

Administrators ask for them, clients that use a topic which does not exist yet, and coordinators that need
their internal topic.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from typing import Protocol, TypeAlias, TypeVar

from forebay.broker.live_config import LiveConfig
from forebay.config import TopicConfig
from forebay.coordination.metadata import Metadata, Plan
from forebay.core.cluster.image import ClusterImage
from forebay.core.cluster.image_changes import Change
from forebay.core.cluster.topics.topic_requests import DEFAULT, NewTopic, create_topic
from forebay.errors import ErrorCode, KafkaError

log = logging.getLogger(__name__)

T = TypeVar("T", bound=Hashable)

Metered: TypeAlias = Callable[[Plan], Plan]
"""Makes a plan count for the quota of the client that wants it, or be refused."""


class TopicChanges:
    def __init__(
        self,
        metadata: Metadata,
        settings: LiveConfig,
        all_open: Callable[[], Awaitable[None]],
        *,
        new_id: Callable[[], bytes],
    ) -> None:
        """`all_open` waits until every partition is open that the image gives this broker; `new_id` makes
        the id of a new topic."""
        self._metadata = metadata
        self._settings = settings
        self.all_open = all_open
        self.new_topic_id = new_id

    async def carry_out(
        self, plan: Plan, *, validate_only: bool, metered: Metered | None = None
    ) -> ClusterImage:
        """The image with the plan carried out; with validate_only only the returned image shows it."""
        if validate_only:
            image = self._metadata.image
            return image.apply(plan(image))
        image = await self._metadata.change(plan if metered is None else metered(plan))
        await self.all_open()
        return image

    async def create(
        self,
        name: str,
        *,
        num_partitions: int = DEFAULT,
        configs: Mapping[str, str | None] | None = None,
        metered: Metered | None = None,
    ) -> None:
        """Create a topic that a client or a coordinator needs, with the broker's defaults for the rest.

        Raises KafkaError, TOPIC_ALREADY_EXISTS among others.
        """
        new = NewTopic(
            name=name, topic_id=self.new_topic_id(), num_partitions=num_partitions, configs=configs or {}
        )

        def plan(image: ClusterImage) -> Sequence[Change]:
            return create_topic(image, self._settings.current, new)

        image = await self._metadata.change(plan if metered is None else metered(plan))
        self.note_created(image, name)
        await self.all_open()

    def note_created(self, image: ClusterImage, name: str) -> None:
        """Warn at once when a new topic refuses acks=all with its first replica away: later is too late."""
        topic = image.topics.get(name)
        if topic is None:
            return
        config = TopicConfig.resolve(self._settings.current, image.topic_config(name).overrides)
        replicas = topic.replication_factor
        if config.needs_all(replicas):
            log.warning(
                "acks=all will be refused whenever one replica of a new topic is away",
                extra={
                    "topic": name,
                    "replicas": replicas,
                    "min_insync": config.insync_replicas_min(replicas),
                },
            )


class ConfigResource(Protocol):
    """A resource that a request wants to alter, in either of the two messages for it; also the result."""

    resource_type: int
    resource_name: str


class ConfigResult(ConfigResource, Protocol):
    error_code: int
    error_message: str | None


R = TypeVar("R", bound=ConfigResource)
Result = TypeVar("Result", bound=ConfigResult)


async def alter_each(
    resources: Sequence[R], alter: Callable[[R], Awaitable[None]], result: Callable[[], Result]
) -> list[Result]:
    """Each resource stands or falls alone: how it went, with what to tell the client."""
    twice = named_twice((item.resource_type, item.resource_name) for item in resources)
    results: list[Result] = []
    for item in resources:
        told = result()
        told.resource_type, told.resource_name = item.resource_type, item.resource_name
        try:
            if (item.resource_type, item.resource_name) in twice:
                raise repeated(item.resource_name)
            await alter(item)
        except KafkaError as error:
            told.error_code, told.error_message = error.code, error.message
        except Exception:
            log.exception("settings could not be altered", extra={"of": item.resource_name})
            told.error_code, told.error_message = ErrorCode.UNKNOWN_SERVER_ERROR, "see the broker's log"
        results.append(told)
    return results


def named_twice(names: Iterable[T]) -> frozenset[T]:
    """Names that one request must not repeat: which of the two should it have been?"""
    return frozenset(name for name, count in Counter(names).items() if count > 1)


def repeated(name: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, f"{name!r} is in the request more than once")
