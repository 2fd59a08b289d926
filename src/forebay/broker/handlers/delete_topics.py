"""DeleteTopics: by name, or from version 6 on by id."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.broker.administration import named_twice, repeated
from forebay.broker.dispatch import Endpoint, RequestContext
from forebay.core.stored import topic_id_text
from forebay.core.topics import delete_topic
from forebay.errors import ErrorCode, KafkaError
from forebay.wire.fields import ZERO_UUID
from forebay.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

if TYPE_CHECKING:
    from forebay.broker.broker import Broker


async def handle(
    broker: Broker, _context: RequestContext, request: DeleteTopicsRequest
) -> DeleteTopicsResponse:
    wanted = request.topics or [DeleteTopicState(name=name) for name in request.topic_names]
    twice = named_twice(_key(topic) for topic in wanted)
    results: dict[str | bytes, DeletableTopicResult] = {}
    for topic in wanted:
        results[_key(topic)] = await _delete(broker, topic, repeats=_key(topic) in twice)
    return DeleteTopicsResponse(responses=list(results.values()))


def _key(topic: DeleteTopicState) -> str | bytes:
    return topic.topic_id if topic.name is None else topic.name


async def _delete(broker: Broker, topic: DeleteTopicState, *, repeats: bool) -> DeletableTopicResult:
    # A name is shown only where the client gave it: an id alone must not tell what it belongs to.
    name, topic_id = topic.name, topic.topic_id
    try:
        if repeats:
            raise repeated(name or topic_id_text(topic_id))
        name, topic_id = _resolve(broker, topic)
        await broker.metadata.change(lambda image: delete_topic(image, broker.config, name))
    except KafkaError as error:
        return DeletableTopicResult(
            name=topic.name, topic_id=topic.topic_id, error_code=error.code, error_message=error.message
        )
    return DeletableTopicResult(name=name, topic_id=topic_id)


def _resolve(broker: Broker, topic: DeleteTopicState) -> tuple[str, bytes]:
    if topic.name is not None:
        if topic.topic_id != ZERO_UUID:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "give the name or the id of a topic, not both")
        known = broker.image.topics.get(topic.name)
        return topic.name, ZERO_UUID if known is None else known.topic_id
    found = broker.image.topic_by_id(topic.topic_id)
    if found is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, f"there is no topic {topic_id_text(topic.topic_id)}")
    return found.name, found.topic_id


ENDPOINT = Endpoint(20, 1, 6, handle)
