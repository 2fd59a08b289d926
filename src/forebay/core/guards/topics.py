"""Guards of creating, deleting and configuring topics and groups.

A view is created like a topic, and shows records of another topic. So its creator must be allowed to read its
source: otherwise anybody who may create topics could read everything. To read a view, a client needs
permission for the view only. For the same reason, only an administrator (Alter of the cluster) restores a
topic from the object store.
"""

from __future__ import annotations

from typing import Any

from forebay.config import DEAD_LETTER_TOPIC
from forebay.core.acls.bindings import CLUSTER_NAME, Operation, ResourceType
from forebay.core.cluster.topics.tier_rules import RESTORE
from forebay.core.guards.guard import (
    CLUSTER,
    DENIED,
    GROUP,
    TOPIC,
    Access,
    Guard,
    Narrowed,
    Refused,
    Verdict,
    changed,
    each,
    explanation,
    split,
    split_by_code,
)
from forebay.core.views.catalog import SOURCE
from forebay.errors import ErrorCode
from forebay.wire.fields import ZERO_UUID
from forebay.wire.messages import alter_configs, incremental_alter_configs
from forebay.wire.messages import create_partitions as partitions_wire
from forebay.wire.messages import create_topics as creating
from forebay.wire.messages import delete_topics as deleting
from forebay.wire.messages import describe_configs as describing

_DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_BY_ID_FROM = 6
_TOPIC_CONFIGS, _GROUP_CONFIGS = 2, 32
"""Types of resources that have settings. All others belong to the cluster."""


# -- creating --------------------------------------------------------------------------------------------


def create_topics(access: Access, _version: int, request: creating.CreateTopicsRequest) -> Verdict:
    left, refused = split(request.topics, lambda topic: _refuses_creation(access, topic))
    answers = [_not_created(topic.name) for topic in refused]
    if not left:
        return Refused(creating.CreateTopicsResponse(topics=answers))

    def complete(response: Any) -> Any:
        for topic in response.topics:
            if not topic.error_code and not access.may(Operation.DESCRIBE_CONFIGS, TOPIC, topic.name):
                _hide_configs(topic)
        return changed(response, topics=[*response.topics, *answers])

    return Narrowed(changed(request, topics=left), complete)


def _refuses_creation(access: Access, topic: creating.CreatableTopic) -> bool:
    if not access.may(Operation.CREATE, CLUSTER, CLUSTER_NAME) and access.refuses(
        Operation.CREATE, TOPIC, topic.name
    ):
        return True
    if any(config.name == RESTORE for config in topic.configs) and access.refuses(
        Operation.ALTER, CLUSTER, CLUSTER_NAME
    ):
        return True
    source = next((config.value for config in topic.configs if config.name == SOURCE), None)
    return bool(source) and access.refuses(Operation.READ, TOPIC, source or "")


def _not_created(name: str) -> creating.CreatableTopicResult:
    return creating.CreatableTopicResult(
        name=name, error_code=_DENIED, error_message=explanation(_DENIED), configs=None
    )


def _hide_configs(topic: creating.CreatableTopicResult) -> None:
    topic.configs = []
    topic.num_partitions = topic.replication_factor = -1
    topic.topic_config_error_code = _DENIED


def _refuses_partitions(access: Access, topic: partitions_wire.CreatePartitionsTopic) -> bool:
    """True if it is not allowed. Fewer partitions may drop messages after a time, which is deleting them."""
    drops = topic.drop_after_ms >= 0
    return access.refuses(Operation.ALTER, TOPIC, topic.name) or (
        drops and access.refuses(Operation.DELETE, TOPIC, topic.name)
    )


create_partitions: Guard = each(
    items="topics",
    results="results",
    response=partitions_wire.CreatePartitionsResponse,
    is_refused=lambda access, topic: _refuses_partitions(access, topic),
    denied=lambda topic: partitions_wire.CreatePartitionsTopicResult(
        name=topic.name, error_code=_DENIED, error_message=explanation(_DENIED)
    ),
)


# -- deleting --------------------------------------------------------------------------------------------


def delete_topics(access: Access, version: int, request: deleting.DeleteTopicsRequest) -> Verdict:
    by_state = version >= _BY_ID_FROM
    items = "topics" if by_state else "topic_names"

    def code_of(item: Any) -> ErrorCode | None:
        if by_state:
            return access.topic_error(Operation.DELETE, item)
        return _DENIED if access.refuses(Operation.DELETE, TOPIC, item) else None

    left, refused = split_by_code(getattr(request, items), code_of)
    if not refused:
        return None
    answers = [
        _not_deleted(access, item if by_state else deleting.DeleteTopicState(name=item), code)
        for item, code in refused
    ]
    if not left:
        return Refused(deleting.DeleteTopicsResponse(responses=answers))

    def complete(response: Any) -> Any:
        return changed(response, responses=[*response.responses, *answers])

    return Narrowed(changed(request, **{items: left}), complete)


def _not_deleted(
    access: Access, topic: deleting.DeleteTopicState, code: ErrorCode
) -> deleting.DeletableTopicResult:
    """A client that gave an id is told the name only if it may see it."""
    name = topic.name
    if topic.topic_id != ZERO_UUID:
        found = access.topic_name(topic.topic_id)
        name = found if found is not None and access.may(Operation.DESCRIBE, TOPIC, found) else None
    return deleting.DeletableTopicResult(
        name=name, topic_id=topic.topic_id, error_code=code, error_message=explanation(code)
    )


# -- settings --------------------------------------------------------------------------------------------


def _owner(resource: Any) -> tuple[ResourceType, str]:
    if resource.resource_type == _TOPIC_CONFIGS:
        return TOPIC, resource.resource_name
    if resource.resource_type == _GROUP_CONFIGS:
        return GROUP, resource.resource_name
    return CLUSTER, CLUSTER_NAME


def _code(access: Access, operation: Operation, resource: Any) -> ErrorCode | None:
    """The error for a resource whose settings the client may not read or alter."""
    kind, name = _owner(resource)
    if access.refuses(operation, kind, name):
        return DENIED[kind]
    if kind is GROUP and operation is Operation.ALTER_CONFIGS:
        named = (config.value for config in resource.configs if config.name == DEAD_LETTER_TOPIC)
        if any(_refuses_dead_letters(access, topic) for topic in named if topic):
            return DENIED[TOPIC]
    return None


def _refuses_dead_letters(access: Access, topic: str) -> bool:
    """Brokers write the dead letters of a group, and may create their topic. A client that names that topic
    must be allowed to do the same."""
    if access.refuses(Operation.WRITE, TOPIC, topic):
        return True
    return access.creates_dead_letter_topics and access.refuses_creation(topic)


def _settings(operation: Operation, results: str, response: Any, result: Any) -> Guard:
    def guard(access: Access, _version: int, request: Any) -> Verdict:
        left, answers = [], []
        for resource in request.resources:
            code = _code(access, operation, resource)
            if code is None:
                left.append(resource)
            else:
                answers.append(_not_configured(result, resource, code))
        if not answers:
            return None
        if not left:
            return Refused(response(**{results: answers}))

        def complete(whole: Any) -> Any:
            return changed(whole, **{results: [*getattr(whole, results), *answers]})

        return Narrowed(changed(request, resources=left), complete)

    return guard


def _not_configured(result: Any, resource: Any, code: ErrorCode) -> Any:
    return result(
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        error_code=code,
        error_message=explanation(code),
    )


describe_configs: Guard = _settings(
    Operation.DESCRIBE_CONFIGS,
    "results",
    describing.DescribeConfigsResponse,
    describing.DescribeConfigsResult,
)
alter_topic_configs: Guard = _settings(
    Operation.ALTER_CONFIGS,
    "responses",
    alter_configs.AlterConfigsResponse,
    alter_configs.AlterConfigsResourceResponse,
)
incremental_alter: Guard = _settings(
    Operation.ALTER_CONFIGS,
    "responses",
    incremental_alter_configs.IncrementalAlterConfigsResponse,
    incremental_alter_configs.AlterConfigsResourceResponse,
)
