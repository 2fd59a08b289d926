"""Reading and altering settings over the wire."""

from __future__ import annotations

from typing import Any

from forebay.wire.messages import alter_configs, incremental_alter_configs
from forebay.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from support.clients.wire_client import WireClient


def describe(
    client: WireClient, kind: int, name: str, *keys: str, version: int = 4, synonyms: bool = True
) -> Any:
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(
                resource_type=kind, resource_name=name, configuration_keys=list(keys) or None
            )
        ],
        include_synonyms=synonyms,
        include_documentation=version >= 3,
    )
    (result,) = client.call(request, version).results
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result


def value_of(client: WireClient, kind: int, name: str, key: str) -> tuple[str | None, int]:
    (config,) = describe(client, kind, name, key).configs
    return config.value, config.config_source


def increment(
    client: WireClient,
    kind: int,
    name: str,
    *changes: tuple[str, int, str | None],
    version: int = 1,
    validate_only: bool = False,
) -> Any:
    resource = incremental_alter_configs.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            incremental_alter_configs.AlterableConfig(name=key, config_operation=op, value=value)
            for key, op, value in changes
        ],
    )
    request = incremental_alter_configs.IncrementalAlterConfigsRequest(
        resources=[resource], validate_only=validate_only
    )
    (response,) = client.call(request, version).responses
    assert (response.resource_type, response.resource_name) == (kind, name)
    return response


def replace(client: WireClient, kind: int, name: str, version: int = 2, **configs: str | None) -> Any:
    resource = alter_configs.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            alter_configs.AlterableConfig(name=key.replace("_", "."), value=value)
            for key, value in configs.items()
        ],
    )
    (response,) = client.call(alter_configs.AlterConfigsRequest(resources=[resource]), version).responses
    return response
