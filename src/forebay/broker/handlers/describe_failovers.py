"""DescribeFailovers: the last failovers of the cluster, as the store has them."""

from __future__ import annotations

from dataclasses import asdict

from forebay.broker.background import Background
from forebay.broker.cluster.failover.failover_times import FailoverTimes
from forebay.broker.net.request_context import RequestContext
from forebay.broker.net.responses.deferred_replies import Reply, answer_later
from forebay.errors import KafkaError
from forebay.wire.messages.describe_failovers import (
    DescribedFailover,
    DescribeFailoversRequest,
    DescribeFailoversResponse,
)


def handle(
    times: FailoverTimes, background: Background, context: RequestContext, _: DescribeFailoversRequest
) -> Reply:
    return answer_later(background, context.defer(), _answer(times), "describing failovers")


async def _answer(times: FailoverTimes) -> DescribeFailoversResponse:
    try:
        found = await times.last()
    except KafkaError as error:
        return DescribeFailoversResponse(error_code=error.code, error_message=error.message)
    return DescribeFailoversResponse(failovers=[DescribedFailover(**asdict(each)) for each in found])
