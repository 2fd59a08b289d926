"""ACLs by Forebay's own requests: librdkafka knows neither delegation tokens nor users as resources."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from forebay.core.acls.administration import read_described
from forebay.core.acls.bindings import AclBinding
from forebay.core.acls.filters import AclFilter
from forebay.operations.client import Client
from forebay.operations.wire import WireConnection, check
from forebay.wire.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from forebay.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse
from forebay.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse


class WireAcls:
    def __init__(self, client: Client) -> None:
        self._client = client

    def create(self, acls: Sequence[AclBinding]) -> None:
        creations = [
            AclCreation(
                resource_type=acl.resource_type,
                resource_name=acl.name,
                resource_pattern_type=acl.pattern,
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission,
            )
            for acl in acls
        ]
        with WireConnection.open(self._client) as connection:
            answer = connection.ask(CreateAclsRequest(creations=creations), CreateAclsResponse)
        for result in answer.results:
            check(result.error_code, result.error_message)

    def describe(self, wanted: AclFilter) -> list[AclBinding]:
        request = DescribeAclsRequest(**_fields(wanted))
        with WireConnection.open(self._client) as connection:
            answer = connection.ask(request, DescribeAclsResponse)
        check(answer.error_code, answer.error_message)
        return sorted(read_described(resource, acl) for resource in answer.resources for acl in resource.acls)

    def delete(self, filters: Sequence[AclFilter]) -> list[AclBinding]:
        """Delete rules; returns those that were deleted."""
        asked = [DeleteAclsFilter(**_fields(wanted)) for wanted in filters]
        with WireConnection.open(self._client) as connection:
            answer = connection.ask(DeleteAclsRequest(filters=asked), DeleteAclsResponse)
        for result in answer.filter_results:
            check(result.error_code, result.error_message)
        return sorted(
            {read_described(acl, acl) for result in answer.filter_results for acl in result.matching_acls}
        )


def _fields(wanted: AclFilter) -> dict[str, Any]:
    """The fields of a filter, which both requests have."""
    return {
        "resource_type_filter": wanted.resource_type,
        "resource_name_filter": wanted.name,
        "pattern_type_filter": wanted.pattern,
        "principal_filter": wanted.principal,
        "host_filter": wanted.host,
        "operation": wanted.operation,
        "permission_type": wanted.permission,
    }
