"""DescribeAcls: there is no authorizer, so there are no access rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.broker.dispatch import Endpoint, RequestContext
from forebay.errors import ErrorCode
from forebay.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

if TYPE_CHECKING:
    from forebay.broker.broker import Broker

NO_AUTHORIZER = "No Authorizer is configured."
"""Kafka's words: MirrorMaker and other tools are known to look for them."""


def handle(_: Broker, _context: RequestContext, _request: DescribeAclsRequest) -> DescribeAclsResponse:
    return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)


ENDPOINT = Endpoint(29, 1, 3, handle)
