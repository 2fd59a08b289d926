"""DeleteTopics: by name, or from version 6 on by id. Views are deleted as topics are."""

from __future__ import annotations

from forebay.broker.broker_time import BrokerTime
from forebay.broker.cluster.topic_changes import named_twice, repeated
from forebay.broker.live_config import LiveConfig
from forebay.broker.net.request_context import RequestContext
from forebay.broker.quotas.client_quotas import ClientQuotas
from forebay.broker.quotas.mutation_quota import MutationQuota
from forebay.coordination.metadata import Metadata
from forebay.core.cluster.image import ClusterImage
from forebay.core.cluster.image_changes import Change
from forebay.core.cluster.images.topic_image import TopicImage
from forebay.core.cluster.stored.image_text import topic_id_text
from forebay.core.cluster.topics.topic_requests import check_deletion, delete_topic, existing_topic
from forebay.core.views.catalog import delete_view, view_named
from forebay.errors import ErrorCode, KafkaError
from forebay.wire.fields import ZERO_UUID
from forebay.wire.messages import delete_topics as wire

QUOTA_ERROR_FROM = 5


async def handle(
    metadata: Metadata,
    settings: LiveConfig,
    quotas: ClientQuotas,
    time: BrokerTime,
    context: RequestContext,
    request: wire.DeleteTopicsRequest,
) -> wire.DeleteTopicsResponse:
    quota = MutationQuota(quotas, context, refuses_from=QUOTA_ERROR_FROM)
    wanted = request.topics or [wire.DeleteTopicState(name=name) for name in request.topic_names]
    twice = named_twice(_key(topic) for topic in wanted)
    results: dict[str | bytes, wire.DeletableTopicResult] = {}
    for topic in wanted:
        results[_key(topic)] = await _delete(
            metadata, settings, quota, time, topic, repeats=_key(topic) in twice
        )
    return quota.answered(wire.DeleteTopicsResponse(responses=list(results.values())))


def _key(topic: wire.DeleteTopicState) -> str | bytes:
    return topic.topic_id if topic.name is None else topic.name


async def _delete(
    metadata: Metadata,
    settings: LiveConfig,
    quota: MutationQuota,
    time: BrokerTime,
    topic: wire.DeleteTopicState,
    *,
    repeats: bool,
) -> wire.DeletableTopicResult:
    deleted: list[tuple[str, bytes]] = []

    def decide(image: ClusterImage) -> list[Change]:
        """Made on the image that is changed: what has a name now may not be what had it a moment ago."""
        check_deletion(settings.current)
        view = view_named(image, _key(topic)) if topic.name is None or topic.topic_id == ZERO_UUID else None
        if view is not None and not view.materialized:
            deleted[:] = [(view.name, view.view_id)]
            return delete_view(view)
        found = _find(image, topic)
        deleted[:] = [(found.name, found.topic_id)]
        return delete_topic(image, settings.current, found.name, deleted_ms=time.now_ms())

    try:
        if repeats:
            raise repeated(topic.name or topic_id_text(topic.topic_id))
        await metadata.change(quota.metered(decide))
    except KafkaError as error:
        # A name is shown only where the client gave it: an id alone must not tell what it belongs to.
        return wire.DeletableTopicResult(
            name=topic.name, topic_id=topic.topic_id, error_code=error.code, error_message=error.message
        )
    name, topic_id = deleted[0]
    return wire.DeletableTopicResult(name=name, topic_id=topic_id)


def _find(image: ClusterImage, topic: wire.DeleteTopicState) -> TopicImage:
    if topic.name is not None:
        if topic.topic_id != ZERO_UUID:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "give the name or the id of a topic, not both")
        return existing_topic(image, topic.name)
    found = image.topic_by_id(topic.topic_id)
    if found is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, f"there is no topic {topic_id_text(topic.topic_id)}")
    return found
