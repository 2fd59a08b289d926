"""Which batches of a read a share group that reads committed messages gets."""

from __future__ import annotations

from random import Random
from typing import Any

from forebay.broker.shares.requests import acquiring
from forebay.storage.log.segment.txn_index import AbortedTxn
from forebay.wire.batch import BatchHeader, build_batch, read_header
from forebay.wire.records import Record

TRANSACTIONAL = 0x10


def header(offset: int, producer_id: int, *, transactional: bool = True) -> BatchHeader:
    batch = build_batch(
        [Record(0, 0, None, b"v")],
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        attributes=TRANSACTIONAL if transactional else 0,
    )
    return read_header(memoryview(batch))._replace(base_offset=offset)


def one(offset: int, producer_id: int, *, transactional: bool = True) -> acquiring._Batch:
    return acquiring._Batch(0, offset, offset, header(offset, producer_id, transactional=transactional))


def visible(batches: list[acquiring._Batch], aborted: list[Any]) -> list[int]:
    return [each.first for each in acquiring._without_aborted(batches, aborted)]


def is_aborted(batch: acquiring._Batch, aborted: list[AbortedTxn]) -> bool:
    return batch.header.is_transactional and any(
        txn.producer_id == batch.header.producer_id and txn.first_offset <= batch.first <= txn.last_offset
        for txn in aborted
    )


def test_what_was_aborted_is_left_out_and_nothing_else() -> None:
    for seed in range(50):
        chance = Random(seed)
        open_since: dict[int, int] = {}
        batches: list[acquiring._Batch] = []
        aborted: list[AbortedTxn] = []
        for offset in range(chance.randint(0, 60)):
            producer_id = chance.randint(1, 4)
            if producer_id in open_since and chance.random() < 0.3:
                first = open_since.pop(producer_id)
                if chance.random() < 0.5:
                    aborted.append(AbortedTxn(producer_id, first, offset, offset))
            else:
                transactional = producer_id in open_since or chance.random() < 0.8
                if transactional:
                    open_since.setdefault(producer_id, offset)
                batches.append(one(offset, producer_id, transactional=transactional))
        wanted = [each.first for each in batches if not is_aborted(each, aborted)]
        assert visible(batches, aborted) == wanted, seed


class Counted(AbortedTxn):
    """Counts how often it is looked at."""

    looks = 0

    def __getattribute__(self, name: str) -> Any:
        Counted.looks += 1
        return super().__getattribute__(name)


def test_not_every_batch_is_compared_with_every_aborted_transaction() -> None:
    """The loop stands still meanwhile."""
    count = 300
    batches = [one(2 * number, number) for number in range(count)]
    aborted = [Counted(number, 2 * number, 2 * number + 1, 2 * number + 1) for number in range(count)]
    Counted.looks = 0
    assert visible(batches, aborted) == []
    assert Counted.looks < 10 * count
