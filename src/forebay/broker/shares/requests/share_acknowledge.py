"""ShareAcknowledge: acknowledgements of records that a member holds, without a fetch."""

from __future__ import annotations

from forebay.broker.net.responses.deferred_replies import Reply
from forebay.broker.shares.requests.share_call import ShareCall
from forebay.errors import ErrorCode
from forebay.wire.fields import Response
from forebay.wire.messages.share_acknowledge import (
    PartitionData,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)


class ShareAcknowledge(ShareCall):
    def start(self) -> Response | Reply:
        self._acknowledge_all()
        return self._answer()

    def _abandoned(self) -> None:
        """Acknowledgements stay valid without a response."""

    def _response(self, *, is_late: bool = False) -> ShareAcknowledgeResponse:  # noqa: ARG002 - both alike
        topics: dict[bytes, list[PartitionData]] = {}
        for at, error in self._acknowledged.items():
            data = PartitionData(
                partition_index=at.partition,
                error_code=ErrorCode.NONE if error is None else error.code,
                error_message=None if error is None else error.message,
                current_leader=self._current_leader(at, error),
            )
            topics.setdefault(at.topic_id, []).append(data)
        return ShareAcknowledgeResponse(
            acquisition_lock_timeout_ms=self._service.lock_ms(self._seen.key.group_id),
            responses=[
                ShareAcknowledgeTopicResponse(topic_id=topic_id, partitions=partitions)
                for topic_id, partitions in topics.items()
            ],
            node_endpoints=self._node_endpoints(),
        )
