"""Tagged fields that are ours alone: whoever does not know them skips them, and says nothing of them."""

from __future__ import annotations

import pytest

from forebay.wire.codec.compiled import decode, encode
from forebay.wire.fields import Request, boolean, int16, int64, string
from forebay.wire.messages.end_txn import EndTxnRequest, EndTxnResponse, FurtherTxn


class KafkaEndTxnRequest(Request, api_key=26, versions=(0, 5), flexible=3):
    """As everybody else declares it."""

    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    committed: bool = boolean()


def request() -> EndTxnRequest:
    further = [FurtherTxn(transactional_id=f"task-{n}", producer_id=n, producer_epoch=1) for n in range(3)]
    return EndTxnRequest(
        transactional_id="driver", producer_id=7, producer_epoch=2, committed=True, further=further
    )


@pytest.mark.parametrize("version", [3, 4])
def test_others_skip_the_further_transactions(version: int) -> None:
    encoded = encode(request(), version)
    assert decode(EndTxnRequest, version, encoded) == request()
    plain = KafkaEndTxnRequest(transactional_id="driver", producer_id=7, producer_epoch=2, committed=True)
    assert decode(KafkaEndTxnRequest, version, encoded) == plain


@pytest.mark.parametrize("version", [0, 2, 5])
def test_versions_without_the_tag_carry_nothing_of_it(version: int) -> None:
    """The answer says nothing of them either, so that nobody believes they were ended."""
    assert decode(EndTxnRequest, version, encode(request(), version)).further == []
    answer = EndTxnResponse(further_error_codes=[0, 0, 0])
    assert decode(EndTxnResponse, version, encode(answer, version)).further_error_codes is None


def test_an_answer_about_nothing_differs_from_no_answer() -> None:
    silent, empty = EndTxnResponse(), EndTxnResponse(further_error_codes=[])
    assert decode(EndTxnResponse, 4, encode(silent, 4)).further_error_codes is None
    assert decode(EndTxnResponse, 4, encode(empty, 4)).further_error_codes == []
