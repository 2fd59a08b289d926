"""CreatePartitions: more partitions for existing topics, or fewer by folding the last ones."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from forebay.broker.broker_time import BrokerTime
from forebay.broker.cluster.topic_changes import TopicChanges, named_twice, repeated
from forebay.broker.live_config import LiveConfig
from forebay.broker.net.request_context import RequestContext
from forebay.broker.quotas.client_quotas import ClientQuotas
from forebay.broker.quotas.mutation_quota import MutationQuota
from forebay.core.cluster.image import ClusterImage
from forebay.core.cluster.image_changes import Change
from forebay.core.cluster.topics.fewer_partitions import FoldRequest, set_partitions
from forebay.errors import KafkaError
from forebay.wire.messages import create_partitions as wire

QUOTA_ERROR_FROM = 3


async def handle(
    topic_changes: TopicChanges,
    settings: LiveConfig,
    time: BrokerTime,
    quotas: ClientQuotas,
    context: RequestContext,
    request: wire.CreatePartitionsRequest,
) -> wire.CreatePartitionsResponse:
    quota = MutationQuota(quotas, context, refuses_from=QUOTA_ERROR_FROM)
    twice = named_twice(topic.name for topic in request.topics)
    results: dict[str, wire.CreatePartitionsTopicResult] = {}
    for topic in request.topics:
        try:
            if topic.name in twice:
                raise repeated(topic.name)
            plan = partial(_plan, settings, topic, time.now_ms())
            await topic_changes.carry_out(plan, validate_only=request.validate_only, metered=quota.metered)
            results[topic.name] = wire.CreatePartitionsTopicResult(name=topic.name)
        except KafkaError as error:
            results[topic.name] = wire.CreatePartitionsTopicResult(
                name=topic.name, error_code=error.code, error_message=error.message
            )
    return quota.answered(wire.CreatePartitionsResponse(results=list(results.values())))


def _plan(
    settings: LiveConfig, topic: wire.CreatePartitionsTopic, now_ms: int, image: ClusterImage
) -> Sequence[Change]:
    fold = FoldRequest(
        count=topic.count,
        now_ms=now_ms,
        drop_after_ms=None if topic.drop_after_ms < 0 else topic.drop_after_ms,
        allow_key_moves=topic.allow_key_moves,
    )
    assignment = None if topic.assignments is None else [item.broker_ids for item in topic.assignments]
    return set_partitions(image, settings.current, topic.name, fold, assignment)
