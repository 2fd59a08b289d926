"""A new leader knows a repeat of a batch in a transaction, in whatever form its topic stores batches."""

from __future__ import annotations

import pytest

from forebay.broker.partition.append_refusals import as_stored
from forebay.broker.partition.producer_replay import accept_batch
from forebay.core.partition.batch_rules import AppendPolicy, place, validate
from forebay.core.partition.delayed_on_append import DelayPolicy
from forebay.core.partition.producers.producer_admission import Decision, Refused, Repeats, admit
from forebay.core.partition.producers.producer_table import ProducerTable
from forebay.core.partition.record_rules import UNEXAMINED
from forebay.errors import ErrorCode
from forebay.wire.batch import TRANSACTIONAL, build_batch, read_header
from forebay.wire.compression import Codec
from forebay.wire.records import Record

NOW_MS = 1_700_000_000_000
UNCHANGED = [AppendPolicy(), AppendPolicy(compacted=True), AppendPolicy(codec=Codec.GZIP)]
CHANGED = [
    AppendPolicy(log_append_time=True),
    AppendPolicy(codec=Codec.ZSTD),
    AppendPolicy(codec=Codec.NONE),
    AppendPolicy(delays=DelayPolicy(2**40, 100, 0)),
]


def sent(value: bytes) -> memoryview:
    headers = [("forebay-deliver-after", b"1h")]
    return memoryview(
        build_batch(
            [Record(0, NOW_MS, b"k", value, headers)],
            codec=Codec.GZIP,
            attributes=TRANSACTIONAL,
            producer_id=1,
            producer_epoch=0,
            base_sequence=0,
        )
    )


def decision_of_a_new_leader(policy: AppendPolicy, before: bytes, now: bytes) -> Decision:
    """About a batch that comes under the same numbers as one that the leader before has stored."""
    batch = sent(before)
    found = as_stored(batch, validate(batch, policy, NOW_MS), policy, NOW_MS + 5, None)
    assert found is not UNEXAMINED
    stored, header, _ = found
    table = ProducerTable()
    accept_batch(table, stored, place(stored, header, 7, 1))
    return admit(table.find(1), read_header(sent(now)))


@pytest.mark.parametrize("policy", [*UNCHANGED, *CHANGED])
def test_a_batch_that_is_sent_again_is_a_repeat(policy: AppendPolicy) -> None:
    decision = decision_of_a_new_leader(policy, b"same", b"same")
    assert isinstance(decision, Repeats) and decision.base_offset == 7


@pytest.mark.parametrize("policy", UNCHANGED)
def test_another_batch_is_none_where_that_can_be_seen(policy: AppendPolicy) -> None:
    decision = decision_of_a_new_leader(policy, b"aborted", b"next")
    assert isinstance(decision, Refused) and decision.code == ErrorCode.UNKNOWN_PRODUCER_ID
