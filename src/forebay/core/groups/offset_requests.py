"""Handles a shard's requests about committed offsets, if the group allows them."""

from __future__ import annotations

from collections.abc import Mapping

from forebay.core.groups import offset_commit
from forebay.core.groups.assigned_partitions import Partitions
from forebay.core.groups.consumer.heartbeat import ConsumerGroup
from forebay.core.groups.failures import failure
from forebay.core.groups.group import Claim, Context, Group
from forebay.core.groups.offset_fetch import Fetcher, as_groups, as_response
from forebay.core.groups.offsets import Offsets
from forebay.core.step import Now, RequestInfo, Step, Ticket
from forebay.errors import ErrorCode
from forebay.wire.fields import Request
from forebay.wire.messages.offset_commit import OffsetCommitRequest
from forebay.wire.messages.offset_delete import OffsetDeleteRequest
from forebay.wire.messages.offset_fetch import OffsetFetchRequest
from forebay.wire.messages.txn_offset_commit import TxnOffsetCommitRequest

_COMMIT_NOT_FOUND_FROM = 9
"""OffsetCommit says that a group does not exist from this version on."""


class OffsetRequests:
    def __init__(self, context: Context, groups: Mapping[str, Group], offsets: Offsets) -> None:
        self._context = context
        self._groups = groups
        self._offsets = offsets

    def commit(self, ticket: Ticket, request: OffsetCommitRequest, info: RequestInfo, now: Now) -> Step:
        claim = Claim(
            request.member_id,
            request.group_instance_id,
            request.generation_id_or_member_epoch,
            api_version=info.api_version,
        )
        group = self._groups.get(request.group_id)
        error = self._check_commit(group, claim)
        if error == ErrorCode.STALE_MEMBER_EPOCH:
            error = self._check_late(claim, group, offset_commit.partitions_of(self._context, request, info))
        if group is not None and error == ErrorCode.NONE:
            group.committed(claim.member_id, now)
        records, response = offset_commit.commit(self._context, request, info, error, now)
        return Step(records=records, replies=[(ticket, response)])

    def commit_in_transaction(
        self, ticket: Ticket, request: TxnOffsetCommitRequest, info: RequestInfo, now: Now
    ) -> Step:
        if request.producer_id < 0 or request.producer_epoch < 0:
            return _failed(ticket, request, info, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        claim = Claim(
            request.member_id, request.group_instance_id, request.generation_id, True, info.api_version
        )
        group = self._groups.get(request.group_id)
        error = self._check_commit(group, claim)
        if error == ErrorCode.STALE_MEMBER_EPOCH:
            error = self._check_late(claim, group, offset_commit.partitions_of(self._context, request, info))
        if error == ErrorCode.STALE_MEMBER_EPOCH:
            error = ErrorCode.ILLEGAL_GENERATION
        records, response = offset_commit.commit_in_transaction(self._context, request, error, now)
        producer = (request.producer_id, request.producer_epoch) if records else None
        return Step(records=records, producer=producer, replies=[(ticket, response)])

    def _check_commit(self, group: Group | None, claim: Claim) -> ErrorCode:
        if group is not None:
            return group.check_commit(claim)
        if claim.epoch < 0:
            return ErrorCode.NONE  # a program that only stores its offsets here
        if claim.transactional or claim.api_version < _COMMIT_NOT_FOUND_FROM:
            return ErrorCode.ILLEGAL_GENERATION
        return ErrorCode.GROUP_ID_NOT_FOUND

    def _check_late(self, claim: Claim, group: Group | None, partitions: Partitions) -> ErrorCode:
        is_late = isinstance(group, ConsumerGroup) and group.is_late_commit(claim, partitions)
        return ErrorCode.NONE if is_late else ErrorCode.STALE_MEMBER_EPOCH

    def fetch(self, ticket: Ticket, request: OffsetFetchRequest, info: RequestInfo) -> Step:
        fetcher = Fetcher(self._context, self._offsets, info, request.require_stable)
        groups = [
            fetcher.fetch(self._groups.get(asked.group_id), asked) for asked in as_groups(request, info)
        ]
        return Step(replies=[(ticket, as_response(groups, info))])

    def delete(self, ticket: Ticket, request: OffsetDeleteRequest, info: RequestInfo) -> Step:
        group = self._groups.get(request.group_id)
        error = ErrorCode.GROUP_ID_NOT_FOUND if group is None else group.check_offset_delete()
        if not request.group_id:
            error = ErrorCode.INVALID_GROUP_ID
        if group is None or error != ErrorCode.NONE:
            return _failed(ticket, request, info, error)
        records, response = offset_commit.delete(self._context, self._offsets, group, request)
        return Step(records=records, replies=[(ticket, response)])


def _failed(ticket: Ticket, request: Request, info: RequestInfo, code: ErrorCode) -> Step:
    return Step(replies=[(ticket, failure(request, info, code))])
