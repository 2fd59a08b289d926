"""DescribeAcls: there is no authorizer, so there are no access rules."""

from __future__ import annotations

from forebay.broker.net.dispatch import RequestContext
from forebay.errors import ErrorCode
from forebay.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

NO_AUTHORIZER = "No Authorizer is configured."
"""Kafka's words: MirrorMaker and other tools are known to look for them."""


def handle(_context: RequestContext, _request: DescribeAclsRequest) -> DescribeAclsResponse:
    return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
