"""The settings of a topic that decide which messages it takes, for writes with a topic for the others."""

from __future__ import annotations

from forebay.errors import ErrorCode, KafkaError
from forebay.lazy import dataclass
from forebay.spark.wire.connections import Cluster, check
from forebay.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource

_TOPIC = 2
_BYTES_MAX, _CLEANUP = "max.message.bytes", "cleanup.policy"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRules:
    message_bytes_max: int | None = None
    """The largest batch that the topic takes, and so the largest message; None: not known."""
    needs_key: bool = False
    """The topic is compacted."""


NOT_KNOWN = TopicRules()


def rules_of(cluster: Cluster, topic: str) -> TopicRules:
    """The rules of a topic. A user who may not describe its settings does not know them."""
    resource = DescribeConfigsResource(
        resource_type=_TOPIC, resource_name=topic, configuration_keys=[_BYTES_MAX, _CLEANUP]
    )
    request = DescribeConfigsRequest(resources=[resource])

    def ask() -> dict[str, str | None]:
        (result,) = cluster.any().ask(request).results
        check(result.error_code, f"the settings of {topic}")
        return {each.name: each.value for each in result.configs}

    try:
        found = cluster.attempt(ask)
    except KafkaError as error:
        if error.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            return NOT_KNOWN
        raise
    policies = (found.get(_CLEANUP) or "").split(",")
    size = found.get(_BYTES_MAX)
    return TopicRules(
        message_bytes_max=None if size is None else int(size),
        needs_key="compact" in (policy.strip() for policy in policies),
    )
