"""What a request costs the event loop grows no faster than the request: for each list of each API.

CPU time of the loop's thread is measured for ten requests and for one with ten times the elements, the least
of several tries each. Ten, because on a busy machine one short request escapes what every long one meets.
An element that costs hardly more than to be decoded needs no comparison: at this size a search in a list
would cost more. Requests are not cut into pieces here: handlers and guards are measured.
"""

from __future__ import annotations

import contextlib
import gc
import math
import time
from collections.abc import Iterator

import pytest

from forebay.broker.net import dispatch, large_requests
from forebay.broker.yielding.core_shortage import CoreShortage
from forebay.wire.messages import api_name
from support.access.principals import ACCESS, ADMIN, KnownClient
from support.brokers.local_broker import LocalBroker, local_broker
from support.brokers.served_apis import ENDPOINTS
from support.brokers.wide_requests import Path, lists, wide
from support.clients.wire_client import create

TIMES = 10
FEW, MANY = 200, TIMES * 200
RATIO_MAX = 1.5
CHEAP_S = 8e-6
"""For an element."""
TRIES = 4
KNOWN = "t"
OTHER_FORMS = {9: 7, 20: 5, 24: 3}
"""APIs whose older versions have other lists."""

CASES = [
    (key, version, path)
    for key, endpoint in sorted(ENDPOINTS.items())
    for version in {endpoint.max_version, OTHER_FORMS.get(key, endpoint.max_version)}
    for path in lists(key, version)
]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    settings = {**ACCESS, "auto.create.topics.enable": "false"}
    with local_broker(tmp_path_factory.mktemp("costs"), settings) as broker:
        with KnownClient(broker) as admin:
            create(admin, KNOWN, 4)
        yield broker


@pytest.fixture(autouse=True)
def unswept() -> Iterator[None]:
    """The collector of garbage looks at all that the tests before have left."""
    gc.disable()
    yield
    gc.enable()


@pytest.fixture(autouse=True)
def uncut(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (dispatch, large_requests):
        monkeypatch.setattr(module, "division_of", lambda *_: None)
    # Nobody rests on a busy machine: what the loop does meanwhile would be counted.
    monkeypatch.setattr(CoreShortage, "rest_s", lambda *_: 0.0)
    monkeypatch.setattr(dispatch, "AT_ONCE_ELEMENTS_MAX", 10**9)


def cost_s(broker: LocalBroker, who: str, case: tuple[int, int, Path], count: int) -> float:
    """Of a request with so many elements."""
    key, version, path = case
    with KnownClient(broker, who) as client:
        frame = client.frame(wide(key, version, path, count, known=KNOWN), version)
        began = broker.on_loop(lambda _: time.thread_time())
        client.socket.sendall(frame)
        with contextlib.suppress(ConnectionResetError):  # a refusal has a cost as well
            client.read_frame()
        return broker.on_loop(lambda _: time.thread_time()) - began


@pytest.mark.parametrize("who", [ADMIN, "User:ada"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{api_name(case[0])}-{case[1]}-{'.'.join(case[2])}")
def test_ten_times_the_elements_cost_about_ten_times_as_much(
    broker: LocalBroker, case: tuple[int, int, Path], who: str
) -> None:
    if cost_s(broker, who, case, MANY) < CHEAP_S * MANY:
        return
    few_s = many_s = math.inf
    for _ in range(TRIES):
        few_s = min(few_s, sum(cost_s(broker, who, case, FEW) for _ in range(TIMES)))
        many_s = min(many_s, cost_s(broker, who, case, MANY))
        if many_s < RATIO_MAX * few_s:
            return
    raise AssertionError(
        f"{few_s * 1000:.1f} ms for {TIMES} x {FEW} elements, {many_s * 1000:.1f} ms for {MANY}"
    )
