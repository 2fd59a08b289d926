"""What a transaction looks like in the log and to operators, and the heap behind its timeouts."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.config import TransactionsConfig, broker_config
from forebay.core.deadline_heap import DeadlineHeap
from forebay.core.step import StateRecord
from forebay.core.transactions.shard import TransactionShard, unknown_states
from forebay.core.transactions.state import State, Transaction, read_key, read_value, record_of, tombstone
from forebay.errors import ErrorCode, ForebayError, ProtocolError
from forebay.wire.messages.list_transactions import ListTransactionsRequest

KEY = struct.pack(">hh", 0, 2) + b"id"


def transaction(name: str = "id", **changes: object) -> Transaction:
    values: dict[str, object] = {
        "transactional_id": name,
        "producer_id": 7,
        "producer_epoch": 3,
        "timeout_ms": 60_000,
        "state": State.ONGOING,
        "last_update_ms": 1001,
        "start_ms": 1000,
        "partitions": frozenset({("a", 1), ("a", 0), ("b", 2)}),
    }
    return Transaction(**(values | changes))  # type: ignore[arg-type]


# -- the log ----------------------------------------------------------------------------------------------


def test_records_are_kafkas_byte_for_byte() -> None:
    partitions = (
        b"\x03" + b"\x02a\x03" + struct.pack(">ii", 0, 1) + b"\0" + b"\x02b\x02" + struct.pack(">i", 2)
    )
    value = (
        struct.pack(">hqhib", 1, 7, 3, 60_000, 1)
        + partitions
        + b"\0"
        + struct.pack(">qq", 1001, 1000)
        + b"\0"
    )
    assert record_of(transaction()) == StateRecord(KEY, value)
    assert tombstone("id") == StateRecord(KEY, None)


def test_an_empty_transaction_has_null_for_its_partitions() -> None:
    txn = transaction(state=State.EMPTY, partitions=frozenset(), start_ms=-1)
    value = struct.pack(">hqhib", 1, 7, 3, 60_000, 0) + b"\0" + struct.pack(">qq", 1001, -1) + b"\0"
    assert record_of(txn).value == value


def test_values_of_older_kafkas_are_read() -> None:
    topic = struct.pack(">ih", 1, 1) + b"a" + struct.pack(">ii", 1, 5)
    value = struct.pack(">hqhib", 0, 7, 3, 60_000, 2) + topic + struct.pack(">qq", 1001, 1000)
    expected = transaction(state=State.PREPARE_COMMIT, partitions=frozenset({("a", 5)}))
    assert read_value("id", value) == expected


def test_our_own_field_is_tagged_behind_kafkas() -> None:
    value = record_of(transaction(last_producer_epoch=2)).value
    assert value is not None
    assert value.endswith(b"\x01" + b"\xe8\x07" + b"\x02" + struct.pack(">h", 2))


@given(
    state=st.sampled_from(State),
    numbers=st.lists(st.integers(-1, 2**15 - 1), min_size=5, max_size=5),
    partitions=st.frozensets(st.tuples(st.text(max_size=5), st.integers(0, 2**31 - 1)), max_size=8),
)
def test_whatever_is_written_is_read_again(
    state: State, numbers: list[int], partitions: frozenset[tuple[str, int]]
) -> None:
    epoch, last_epoch, previous, following, version = numbers
    txn = transaction(
        state=state,
        partitions=frozenset() if state is State.EMPTY else partitions,
        producer_epoch=epoch,
        last_producer_epoch=last_epoch,
        previous_producer_id=previous,
        next_producer_id=following,
        client_version=version,
    )
    record = record_of(txn)
    assert record.value is not None
    assert read_key(record.key) == "id"
    assert read_value("id", record.value) == txn


def test_a_kind_of_record_from_the_future_is_passed_over() -> None:
    shard = TransactionShard(TransactionsConfig())
    shard.replay(StateRecord(struct.pack(">h", 9) + b"what?", b"ever"))
    assert not shard.transactions


@pytest.mark.parametrize("value", [b"", b"\0", struct.pack(">hq", 1, 7), struct.pack(">h", 5)])
def test_damaged_values_are_one_clear_error(value: bytes) -> None:
    with pytest.raises(ForebayError):
        TransactionShard(TransactionsConfig()).replay(StateRecord(KEY, value))


def test_a_state_that_nobody_knows_is_a_protocol_error() -> None:
    record = record_of(transaction())
    assert record.value is not None
    value = bytearray(record.value)
    value[16] = 99
    with pytest.raises(ProtocolError, match="state 99"):
        read_value("id", bytes(value))


# -- operators ----------------------------------------------------------------------------------------------


def shard_of(*transactions: Transaction) -> TransactionShard:
    shard = TransactionShard(TransactionsConfig())
    for txn in transactions:
        shard.replay(record_of(txn))
    return shard


def test_a_description_says_everything() -> None:
    (state,) = shard_of(transaction()).describe_transactions(["id"])
    assert state.error_code == ErrorCode.NONE
    assert (state.transaction_state, state.transaction_timeout_ms) == ("Ongoing", 60_000)
    assert (state.transaction_start_time_ms, state.producer_id, state.producer_epoch) == (1000, 7, 3)
    assert [(topic.topic, topic.partitions) for topic in state.topics] == [("a", [0, 1]), ("b", [2])]


def test_a_description_of_what_is_not_there() -> None:
    missing, nameless = shard_of().describe_transactions(["id", ""])
    assert (missing.transactional_id, missing.error_code) == ("id", ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    assert nameless.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("filters", "names"),
    [
        ({}, "abc"),
        ({"state_filters": ["Ongoing"]}, "a"),
        ({"state_filters": ["Ongoing", "CompleteAbort"]}, "ac"),
        ({"state_filters": ["Imaginary"]}, ""),
        ({"producer_id_filters": [2, 3]}, "bc"),
        ({"duration_filter": 0}, "abc"),
        ({"duration_filter": 1000}, "bc"),
        ({"duration_filter": 5000}, ""),
        ({"duration_filter": 0, "producer_id_filters": [1]}, "a"),
    ],
)
def test_a_list_is_filtered(filters: dict[str, object], names: str) -> None:
    shard = shard_of(
        transaction("a", producer_id=1, start_ms=4500),
        transaction("b", producer_id=2, start_ms=1000, state=State.PREPARE_COMMIT),
        transaction("c", producer_id=3, start_ms=0, state=State.COMPLETE_ABORT, partitions=frozenset()),
    )
    request = ListTransactionsRequest(**filters)  # type: ignore[arg-type]
    assert "".join(each.transactional_id for each in shard.list_transactions(request, 5000)) == names


def test_filters_that_name_no_state_are_told() -> None:
    assert unknown_states(ListTransactionsRequest(state_filters=["Dead", "Imaginary"])) == ["Imaginary"]


# -- settings, deadlines ----------------------------------------------------------------------------------


def test_settings_have_kafkas_names() -> None:
    config = broker_config({"transaction.max.timeout.ms": "1000", "transactional.id.expiration.ms": "5"})
    assert config.transactions == TransactionsConfig(max_timeout_ms=1000, id_expiration_ms=5)
    assert broker_config().transactions == TransactionsConfig()


@given(st.lists(st.tuples(st.sampled_from("abcde"), st.integers(0, 50), st.booleans()), max_size=300))
def test_nothing_comes_up_late(events: list[tuple[str, int, bool]]) -> None:
    deadlines, wanted, now_ms = DeadlineHeap[str](), dict[str, int](), 0
    for name, ms, looks in events:
        if not looks:
            deadlines.set_no_later(name, now_ms + ms)
            wanted[name] = min(now_ms + ms, wanted.get(name, now_ms + ms))
            continue
        now_ms += ms
        assert deadlines.next_ms() == min(wanted.values(), default=None)
        due = list(iter(lambda: deadlines.pop_due(now_ms), None))  # noqa: B023
        assert sorted(due) == sorted(name for name, at in wanted.items() if at <= now_ms)
        wanted = {name: at for name, at in wanted.items() if at > now_ms}
        assert len(deadlines) == len(wanted)


def test_forgotten_deadlines_take_no_room() -> None:
    deadlines = DeadlineHeap[str]()
    for at_ms in range(100_000, 0, -1):
        deadlines.set_no_later("a", at_ms)
    assert len(deadlines.heap) < 2_000
    assert (deadlines.pop_due(1), deadlines.pop_due(1)) == ("a", None)
    assert deadlines.next_ms() is None
