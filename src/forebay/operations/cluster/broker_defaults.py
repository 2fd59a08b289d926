"""Settings of all brokers at once: to the protocol those of the broker with an empty name."""

from __future__ import annotations

from collections.abc import Sequence

from forebay.core.cluster.resources import ResourceType
from forebay.operations.wire import WireConnection, check
from forebay.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from forebay.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


def read_defaults(
    connection: WireConnection, keys: Sequence[str] | None = None
) -> list[DescribeConfigsResourceResult]:
    """These settings, or all that are set. Raises CommandError."""
    default = DescribeConfigsResource(
        resource_type=ResourceType.BROKER,
        resource_name="",
        configuration_keys=None if keys is None else list(keys),
    )
    answer = connection.ask(DescribeConfigsRequest(resources=[default]), DescribeConfigsResponse)
    (found,) = answer.results
    check(found.error_code, found.error_message)
    return found.configs


def alter_defaults(connection: WireConnection, changes: Sequence[AlterableConfig]) -> None:
    """All of it or nothing. Raises CommandError."""
    default = AlterConfigsResource(resource_type=ResourceType.BROKER, resource_name="", configs=list(changes))
    request = IncrementalAlterConfigsRequest(resources=[default])
    (done,) = connection.ask(request, IncrementalAlterConfigsResponse).responses
    check(done.error_code, done.error_message)
