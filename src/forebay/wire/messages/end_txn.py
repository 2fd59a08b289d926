"""EndTxn: commit or abort a transaction, or several in one step.

`further` is Forebay's: it names more transactions that end in the same way as the first, all of them or none.
A broker that does not know the tag skips it and ends the first one alone; the client can tell by the
response, where `further_error_codes` is then missing. Version 5 does not have it, because each producer gets
a new epoch there.
"""

from __future__ import annotations

from forebay.wire.api_keys import ApiKey
from forebay.wire.fields import (
    OWN_TAGS_FROM,
    Request,
    Response,
    Struct,
    array,
    boolean,
    int16,
    int32,
    int64,
    string,
)

END_TOGETHER = "forebay.end.together"
"""The feature by which a broker advertises, in ApiVersions, that it accepts further transactions."""

LOOKS_AFTER_FAMILIES = 2
"""The level of the feature from which AddPartitionsToTxn renews and forgets families of transactions."""

FURTHER_MAX = 4_000
"""The most transactions that a request may name besides the first."""


class FurtherTxn(Struct):
    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()


class EndTxnRequest(Request, api_key=ApiKey.END_TXN, versions=(0, 5), flexible=3):
    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    committed: bool = boolean()
    further: list[FurtherTxn] = array(FurtherTxn, "3-4", tag=OWN_TAGS_FROM)


class EndTxnResponse(Response, api_key=ApiKey.END_TXN, versions=(0, 5), flexible=3):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id: int = int64("5+", default=-1)
    producer_epoch: int = int16("5+", default=-1)
    further_error_codes: list[int] | None = array(
        int16, "3-4", nullable="3-4", default=None, tag=OWN_TAGS_FROM
    )
    """One for each of `further`, in that order. If one is wrong, all others were not attempted."""
