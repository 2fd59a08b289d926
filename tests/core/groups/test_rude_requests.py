"""Nothing that a client can send makes a machine raise: that would cost everyone on its partition a moment.

The requests are random in all their fields; some fields are often made to fit, or nothing would ever get
past the first check.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from forebay.config import TransactionsConfig
from forebay.core.groups.classic.requests import ClassicGroup
from forebay.core.groups.consumer.heartbeat import ConsumerGroup
from forebay.core.step import RequestInfo
from forebay.wire.codec.compiled import decode, encode
from forebay.wire.codec.layout import STRING_BYTES_MAX, Layout
from forebay.wire.fields import Field, Message, Request, Struct
from forebay.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from forebay.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from forebay.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from forebay.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from forebay.wire.messages.delete_groups import DeleteGroupsRequest
from forebay.wire.messages.describe_groups import DescribeGroupsRequest
from forebay.wire.messages.end_txn import EndTxnRequest
from forebay.wire.messages.heartbeat import HeartbeatRequest
from forebay.wire.messages.init_producer_id import InitProducerIdRequest
from forebay.wire.messages.join_group import JoinGroupRequest
from forebay.wire.messages.leave_group import LeaveGroupRequest
from forebay.wire.messages.offset_commit import OffsetCommitRequest
from forebay.wire.messages.offset_delete import OffsetDeleteRequest
from forebay.wire.messages.offset_fetch import OffsetFetchRequest
from forebay.wire.messages.sync_group import SyncGroupRequest
from forebay.wire.messages.txn_offset_commit import TxnOffsetCommitRequest
from support.machines.consumer_runtime import ORDERS, PAYMENTS, ConsumerRuntime
from support.machines.group_runtime import subscription
from support.machines.transaction_log import Coordinator
from wire.message_values import random_message

LONGEST = "x" * STRING_BYTES_MAX
STEPS = 250

GROUP_OPERATIONS: dict[str, type[Request]] = {
    "join_group": JoinGroupRequest,
    "sync_group": SyncGroupRequest,
    "heartbeat": HeartbeatRequest,
    "leave_group": LeaveGroupRequest,
    "consumer_group_heartbeat": ConsumerGroupHeartbeatRequest,
    "consumer_group_describe": ConsumerGroupDescribeRequest,
    "offset_commit": OffsetCommitRequest,
    "txn_offset_commit": TxnOffsetCommitRequest,
    "offset_fetch": OffsetFetchRequest,
    "offset_delete": OffsetDeleteRequest,
    "describe_groups": DescribeGroupsRequest,
    "delete_groups": DeleteGroupsRequest,
}


def fit(random: Random, layout: Layout, struct: Struct, fitting: dict[str, list[Any]]) -> None:
    """Give most fields of these names, at any depth, one of the values that fit."""
    for name, field in struct.FIELDS.items():
        value = getattr(struct, name)
        chosen = random.choice(fitting[name]) if name in fitting and random.random() < 0.95 else value
        if may_be(layout, field, chosen):
            setattr(struct, name, chosen)
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, Struct):
                fit(random, layout, each, fitting)


def may_be(layout: Layout, field: Field, value: Any) -> bool:
    if value is None:
        return layout.nullable(field)
    if isinstance(value, list):
        is_plain = field.element is not None and field.element.struct is None
        return value == [] or is_plain
    return field.kind != "array"


def arrived(random: Random, cls: type[Message], fitting: dict[str, list[Any]]) -> tuple[Any, int]:
    """A request as the wire brings it, and its version."""
    version = random.randint(cls.MIN_VERSION, cls.MAX_VERSION)
    request = random_message(random, cls, version)
    fit(random, Layout(cls, version), request, fitting)
    return decode(cls, version, encode(request, version)), version


def group_values(random: Random, runtime: ConsumerRuntime) -> dict[str, list[Any]]:
    """What would be right for one of the groups as it is now."""
    group_id = random.choice(("g", "h", LONGEST))
    members, epochs = known_of(runtime, group_id)
    told = [getattr(answer, "member_id", "") or "" for answer in runtime.answers.values()]
    return {
        "group_id": [group_id],
        "groups_names": [[group_id]],
        "group_ids": [[group_id], ["g", "h"]],
        "groups": [[group_id], ["g", "h"]],
        "member_id": [*(members or ["", "mine"]), *told[-1:]],
        "group_instance_id": [None, None, None, "one"],
        "instance_id": [None, None, None, "one"],
        "generation_id": epochs,
        "member_epoch": [0, *epochs],
        "generation_id_or_member_epoch": epochs,
        "session_timeout_ms": [6_000, 10_000],
        "rebalance_timeout_ms": [1_000, 60_000],
        "protocol_type": ["consumer"],
        "name": ["orders", "payments", "range", LONGEST],
        "topic_id": [ORDERS, PAYMENTS],
        "metadata": [subscription("orders"), subscription("payments", "orders"), b"junk"],
        "protocol_name": [None],
        "partition_index": [0, 1],
        "partitions": [[0], [0, 1], [2, 3]],
        "partition_indexes": [[0], [1, -1]],
        "subscribed_topic_names": [["orders"], ["orders", "payments"]],
        "subscribed_topic_regex": [None, "", "o.*"],
        "server_assignor": [None, "uniform"],
        "topic_partitions": [[]],
        "rack_id": [None, "r"],
        "producer_id": [7, 8],
        "producer_epoch": [0],
    }


def known_of(runtime: ConsumerRuntime, group_id: str) -> tuple[list[str], list[int]]:
    """Member ids and generations or member epochs of a group."""
    group = runtime.shard.groups.get(group_id)
    if isinstance(group, ClassicGroup):
        return [*group.members, *group.pending], [group.generation, -1]
    if isinstance(group, ConsumerGroup):
        return list(group.state.members), [each.epoch for each in group.state.members.values()] or [0]
    return [], [-1]


@pytest.mark.parametrize("seed", range(8))
def test_groups_answer_whatever_they_are_asked(seed: int) -> None:
    random = Random(seed)
    runtime = ConsumerRuntime(initial_rebalance_delay_ms=random.choice((0, 3_000)))
    for _ in range(STEPS):
        operation, cls = random.choice(list(GROUP_OPERATIONS.items()))
        request, version = arrived(random, cls, group_values(random, runtime))
        runtime.send(operation, request, version, random.choice(("app", "", LONGEST)))
        if random.random() < 0.1:
            runtime.advance(random.choice((1, 1_000, 10_000, 100_000)))
        if random.random() < 0.03:
            runtime.end_transaction(commit=random.random() < 0.5, producer_id=random.choice((7, 8)))
        if random.random() < 0.02:
            runtime.crash()
    runtime.advance(30 * 86_400_000)


TRANSACTION_REQUESTS: list[type[Request]] = [
    InitProducerIdRequest,
    AddPartitionsToTxnRequest,
    AddOffsetsToTxnRequest,
    EndTxnRequest,
]


def ask(coordinator: Coordinator, random: Random, request: Any, version: int) -> None:
    ticket, shard = coordinator.ticket(), coordinator.shard
    info, fresh = RequestInfo(version), random.choice((-1, random.randint(100, 200)))
    if isinstance(request, InitProducerIdRequest):
        step = shard.init_producer_id(ticket, request, fresh, info, coordinator.now)
    elif isinstance(request, AddPartitionsToTxnRequest):
        step = shard.add_partitions_to_txn(ticket, request, info, coordinator.now)
    elif isinstance(request, AddOffsetsToTxnRequest):
        step = shard.add_offsets_to_txn(ticket, request, 0, info, coordinator.now)
    else:
        step = shard.end_txn(ticket, request, fresh, info, coordinator.now)
    coordinator.run(step)
    answer = coordinator.take(ticket)
    if answer is not None:
        encode(answer, version)


@pytest.mark.parametrize("seed", range(8))
def test_transactions_answer_whatever_they_are_asked(seed: int) -> None:
    random = Random(seed)
    coordinator = Coordinator(config=TransactionsConfig(), writes_markers=random.random() < 0.7)
    for _ in range(STEPS):
        known = list(coordinator.shard.transactions.values())
        fitting: dict[str, list[Any]] = {
            "transactional_id": ["t", "u", LONGEST],
            "v3_and_below_transactional_id": ["t", "u", LONGEST],
            "transaction_timeout_ms": [1, 60_000],
            "name": ["orders", LONGEST],
            "partitions": [[0], [0, 1], [-1, 2**31 - 1]],
            "producer_id": [-1, *(each.producer_id for each in known)],
            "v3_and_below_producer_id": [-1, *(each.producer_id for each in known)],
            "producer_epoch": [-1, *(each.producer_epoch for each in known)],
            "v3_and_below_producer_epoch": [-1, *(each.producer_epoch for each in known)],
            "verify_only": [False, False, True],
        }
        request, version = arrived(random, random.choice(TRANSACTION_REQUESTS), fitting)
        ask(coordinator, random, request, version)
        if random.random() < 0.1:
            coordinator.pass_time(random.choice((1, 1_000, 100_000)))
        if random.random() < 0.02:
            coordinator.crash(len(coordinator.log))
    coordinator.pass_time(30 * 86_400_000)
