"""The members of the curves of groups that report at their own pace."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from bench.scale.paced import Pace


class Member:
    """One whose heartbeats are answered at once."""

    interval_ms = 1

    def __init__(self) -> None:
        self.client, self._broker = socket.socketpair()
        self.posted = self.answered = 0

    def post(self) -> None:
        assert self.posted == self.answered, "it reports again before it has its answer"
        self.posted += 1
        self._broker.send(b"!")

    def read(self) -> None:
        assert self.client.recv(1) == b"!"
        self.answered += 1

    def close(self) -> None:
        self.client.close()
        self._broker.close()


@pytest.fixture
def members() -> Iterator[list[Member]]:
    with ExitStack() as stack:
        made = [Member() for _ in range(5)]
        for each in made:
            stack.callback(each.close)
        yield made


def test_members_report_until_each_has_had_an_answer(members: list[Member]) -> None:
    pace = Pace(members)
    pace.run(lambda: True)
    assert all(each.answered for each in members)
    pace.end()
    assert [each.posted for each in members] == [each.answered for each in members]


def test_members_report_until_it_is_over(members: list[Member]) -> None:
    pace = Pace(members)
    pace.run(lambda: members[0].answered >= 3)
    first = [each.answered for each in members]
    pace.run(lambda: True)
    assert first[0] >= 3
    assert all(now > before for now, before in zip((each.answered for each in members), first, strict=True))
