"""What an answer to a member of a share group waits for: writes can be given up, reads of the disk cannot."""

from __future__ import annotations

import asyncio

from forebay.broker.shares.requests.outstanding import Outstanding
from forebay.errors import ErrorCode, KafkaError


class Waiting:
    """A call that notes what it is told."""

    def __init__(self) -> None:
        self.errors: dict[str, ErrorCode] = {}
        self.nothing_left = asyncio.Event()
        self.outstanding = Outstanding(asyncio.get_running_loop(), self.nothing_left.set)

    def told(self, name: str, error: KafkaError | None) -> None:
        self.errors[name] = ErrorCode.NONE if error is None else error.code


async def test_the_last_one_that_is_done_ends_the_wait() -> None:
    call = Waiting()
    write = call.outstanding.add(lambda error: call.told("write", error), is_write=True)
    read = call.outstanding.add(lambda error: call.told("read", error), is_write=False)
    write(None)
    assert call.outstanding and not call.nothing_left.is_set()
    read(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is gone"))
    assert not call.outstanding and call.nothing_left.is_set()
    assert call.errors == {"write": ErrorCode.NONE, "read": ErrorCode.KAFKA_STORAGE_ERROR}


async def test_writes_are_given_up_and_reads_are_waited_for() -> None:
    call = Waiting()
    given_up = asyncio.Event()

    def written(error: KafkaError | None) -> None:
        call.told("write", error)
        given_up.set()

    write = call.outstanding.add(written, is_write=True)
    read = call.outstanding.add(lambda error: call.told("read", error), is_write=False)
    call.outstanding.limit_writes(0.0)
    await given_up.wait()
    assert call.errors == {"write": ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert call.outstanding and not call.nothing_left.is_set()
    write(None)
    assert call.errors == {"write": ErrorCode.COORDINATOR_NOT_AVAILABLE}, "it came too late"
    read(None)
    assert call.nothing_left.is_set()


async def test_nobody_is_told_once_the_call_is_answered() -> None:
    call = Waiting()
    write = call.outstanding.add(lambda error: call.told("write", error), is_write=True)
    call.outstanding.limit_writes(60.0)
    call.outstanding.close()
    write(None)
    assert not call.nothing_left.is_set()
