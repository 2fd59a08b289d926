"""Which quota counts for a client, who shares it, and how long a client over its quota waits."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.core.quotas import limiter as limiter_module
from forebay.core.quotas.entities import QuotaEntity, quota_entity
from forebay.core.quotas.keys import QuotaKey
from forebay.core.quotas.limiter import SWEEP_S, Bursts, ClientLimits, Limiter
from forebay.core.quotas.precedence import Quotas
from forebay.core.quotas.token_bucket import TokenBucket

LEVELS = [
    quota_entity(user="u", client_id="c"),
    quota_entity(user="u", client_id=None),
    quota_entity(user="u"),
    quota_entity(user=None, client_id="c"),
    quota_entity(user=None, client_id=None),
    quota_entity(user=None),
    quota_entity(client_id="c"),
    quota_entity(client_id=None),
]
"""The most specific first."""
SHARED = [("u", "c"), ("u", "c"), ("u", None), ("u", "c"), ("u", "c"), ("u", None), (None, "c"), (None, "c")]
"""What the clients have in common that are counted together."""
OTHERS = [
    quota_entity(user="v", client_id="c"),
    quota_entity(user="u", client_id="d"),
    quota_entity(user="v"),
    quota_entity(user=None, client_id="d"),
    quota_entity(client_id="d"),
    quota_entity(ip="u"),
]
"""Quotas of others, which never count."""
PRODUCE = QuotaKey.PRODUCE


def stored(*entities: QuotaEntity, key: QuotaKey = PRODUCE) -> list[tuple[QuotaEntity, dict[str, float]]]:
    return [(entity, {key: float(number)}) for number, entity in enumerate(entities, 1)]


def test_the_most_specific_quota_counts() -> None:
    assert Quotas(stored(*OTHERS)).find(PRODUCE, "u", "c") is None
    for present in product([False, True], repeat=len(LEVELS)):
        entities = [level for level, there in zip(LEVELS, present, strict=True) if there]
        found = Quotas(stored(*OTHERS, *entities)).find(PRODUCE, "u", "c")
        if entities:
            assert found is not None and found.entity == entities[0]
            assert found.shared_by == (PRODUCE, *SHARED[LEVELS.index(entities[0])])


def test_an_entity_without_the_key_does_not_hide_one_that_has_it() -> None:
    quotas = Quotas([*stored(LEVELS[0], key=QuotaKey.FETCH), *stored(LEVELS[7])])
    assert (found := quotas.find(PRODUCE, "u", "c")) is not None and found.entity == LEVELS[7]
    assert quotas.find(QuotaKey.REQUEST, "u", "c") is None


def test_a_client_without_an_id_has_the_default() -> None:
    for entity in (quota_entity(client_id=None), quota_entity(user=None, client_id=None)):
        found = Quotas(stored(entity)).find(PRODUCE, "u", "")
        assert found is not None and found.shared_by[2] == ""


def test_an_address_has_its_own_quota_or_the_default() -> None:
    own, default = quota_entity(ip="10.0.0.1"), quota_entity(ip=None)
    quotas = Quotas(stored(own, default, key=QuotaKey.CONNECTION))
    assert quotas.limits_connections and not quotas.limits_clients
    for ip, entity in (("10.0.0.1", own), ("10.0.0.2", default)):
        found = quotas.find_of_ip(ip)
        assert found is not None and found.entity == entity and found.shared_by[1] == ip
    assert Quotas(stored(own, key=QuotaKey.CONNECTION)).find_of_ip("10.0.0.2") is None


def test_values_of_a_later_version_limit_nothing() -> None:
    quotas = Quotas([(LEVELS[2], {"of_a_later_version": 1.0})])
    assert not quotas.limits_clients and not quotas.limits_connections


# -- buckets -----------------------------------------------------------------------------------------------


def bucket(bound: float = 100.0, *, burst_s: float = 10.0, debt_s_max: float = 30.0) -> TokenBucket:
    return TokenBucket(bound, 0.0, burst_s=burst_s, debt_s_max=debt_s_max)


def test_a_burst_costs_nothing_and_what_is_beyond_it_is_waited_for() -> None:
    tokens = bucket()
    assert tokens.take(1000, 0.0) == 0.0
    assert tokens.take(500, 0.0) == pytest.approx(5.0)
    assert tokens.wait_s(2.0) == pytest.approx(3.0)
    assert tokens.wait_s(5.0) == 0.0
    assert tokens.take(100, 6.0) == pytest.approx(0.0), "a second's worth came back"
    assert not tokens.is_full(15.0) and tokens.is_full(16.0)


def test_nobody_waits_longer_than_the_longest_wait() -> None:
    tokens = bucket(debt_s_max=2.0)
    assert tokens.take(1e9, 0.0) == pytest.approx(2.0)
    assert tokens.take(1e9, 1.0) == pytest.approx(2.0)


def test_time_that_goes_back_gives_nothing_and_takes_nothing() -> None:
    tokens = bucket()
    tokens.take(1500, 10.0)
    assert tokens.wait_s(3.0) == pytest.approx(5.0)
    assert tokens.wait_s(10.0) == pytest.approx(5.0)


def test_what_has_no_room_is_not_taken() -> None:
    tokens = bucket()
    assert tokens.take_if_room(800, 0.0) == (True, 0.0)
    taken, wait = tokens.take_if_room(800, 0.0)
    assert not taken and wait == pytest.approx(6.0)
    assert tokens.take_if_room(200, 0.0) == (True, 0.0), "the refused amount left no trace"
    assert tokens.take_if_room(800, 8.0)[0], "the wait was exactly as long as it takes"


def test_what_is_larger_than_the_bucket_is_taken_when_it_is_full() -> None:
    tokens = bucket()
    tokens.take(1, 0.0)
    taken, wait = tokens.take_if_room(5000, 0.0)
    assert not taken and wait == pytest.approx(0.01)
    taken, wait = tokens.take_if_room(5000, 0.01)
    assert taken and wait == pytest.approx(30.0), "40 s, and nobody waits that long"


def test_what_is_given_back_was_never_taken() -> None:
    tokens = bucket()
    tokens.take(1100, 0.0)
    tokens.give_back(1100)
    assert tokens.is_full(0.0)


@given(
    bound=st.floats(0.5, 1e6),
    steps=st.lists(st.tuples(st.floats(0.0, 1.0), st.floats(0.0, 3.0)), min_size=1, max_size=60),
)
def test_who_waits_as_told_stays_within_the_quota(bound: float, steps: list[tuple[float, float]]) -> None:
    """`steps`: amounts, as parts of what the longest wait pays for, and idle times."""
    tokens = TokenBucket(bound, 0.0, burst_s=10.0, debt_s_max=30.0)
    now = used = 0.0
    for part, idle in steps:
        amount = part * bound * 30.0
        used += amount
        assert used <= (bound * (10.0 + now) + amount) * (1 + 1e-6), "more than the bound and one amount"
        now += tokens.take(amount, now) + idle


# -- clients and their buckets -----------------------------------------------------------------------------


def limits(limiter: Limiter, user: str = "u", client: str = "c", now: float = 0.0) -> ClientLimits:
    found = limiter.of_client(user, client, now)
    assert found is not None
    return found


def with_quotas(*entities: QuotaEntity, bursts: Bursts | None = None, key: QuotaKey = PRODUCE) -> Limiter:
    limiter = Limiter(bursts or Bursts())
    limiter.replace(stored(*entities, key=key))
    return limiter


@pytest.mark.parametrize("level", range(len(LEVELS)))
def test_clients_share_a_bucket_as_their_quota_says(level: int) -> None:
    limiter = with_quotas(LEVELS[level])
    own = limits(limiter).produce
    assert own is not None and limits(limiter).produce is own
    in_common = SHARED[level]
    for user, client in (("v", "c"), ("u", "d"), ("v", "d")):
        other = limiter.of_client(user, client, 0.0)
        same = in_common[0] in (None, user) and in_common[1] in (None, client)
        assert (other is not None and other.produce is own) == same


def test_a_client_that_nothing_limits_is_told_so() -> None:
    assert with_quotas(LEVELS[0]).of_client("v", "c", 0.0) is None
    assert not Limiter(Bursts()).limits_clients


@pytest.mark.parametrize("key", [QuotaKey.PRODUCE, QuotaKey.FETCH, QuotaKey.REQUEST, QuotaKey.MUTATION])
def test_each_quota_has_its_own_bucket_and_burst(key: QuotaKey) -> None:
    bursts = Bursts(
        burst_s=2.0, mutation_burst_s=3.0, mutation_debt_s_max=9.0, debt_s_max=7.0, request_debt_s_max=1.0
    )
    limiter = with_quotas(LEVELS[2], bursts=bursts, key=key)
    (found,) = [each for each in limits(limiter) if each is not None]
    assert found.capacity == (3.0 if key is QuotaKey.MUTATION else 2.0)
    longest = {QuotaKey.REQUEST: 1.0, QuotaKey.MUTATION: 9.0}.get(key, 7.0)
    assert found.take(1e9, 0.0) == pytest.approx(longest)


def test_what_was_used_counts_on_if_the_quota_stays_and_not_if_it_changes() -> None:
    limiter = with_quotas(LEVELS[2])
    before = limits(limiter).produce
    limiter.replace([*stored(LEVELS[2]), *stored(LEVELS[7], key=QuotaKey.FETCH)])
    assert limits(limiter).produce is before
    limiter.replace([(LEVELS[2], {PRODUCE: 5.0})])
    after = limits(limiter).produce
    assert after is not before and after is not None and after.bound == 5.0
    limiter.replace([])
    assert limiter.of_client("u", "c", 0.0) is None and limiter.bucket_count == 0


def test_idle_buckets_are_dropped_and_those_in_use_are_kept() -> None:
    limiter = with_quotas(quota_entity(client_id=None))
    for number in range(100):
        limits(limiter, client=f"idle{number}")
    busy = limits(limiter, client="busy").produce
    assert busy is not None
    busy.take(5.0, SWEEP_S)
    limits(limiter, client="new", now=SWEEP_S + 1)
    assert limiter.bucket_count == 2
    assert limits(limiter, client="busy", now=SWEEP_S + 1).produce is busy


def test_there_are_never_more_buckets_than_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limiter_module, "BUCKETS_MAX", 50)
    limiter = with_quotas(quota_entity(client_id=None))
    for number in range(500):
        found = limits(limiter, client=f"c{number}").produce
        assert found is not None
        found.take(1e9, 0.0)
        assert limiter.bucket_count <= 50


def test_addresses_have_buckets_of_their_own() -> None:
    limiter = with_quotas(quota_entity(ip=None), key=QuotaKey.CONNECTION)
    one, other = limiter.of_ip("10.0.0.1", 0.0), limiter.of_ip("10.0.0.2", 0.0)
    assert one is not None and other is not None and one is not other
    assert limiter.of_ip("10.0.0.1", 0.0) is one


def test_room_is_made_seldom_however_many_clients_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """With all buckets in use, every request of every client would look at all of them otherwise."""
    monkeypatch.setattr(limiter_module, "BUCKETS_MAX", 200)
    looked_at, is_full = 0, TokenBucket.is_full

    def counted(self: TokenBucket, now: float) -> bool:
        nonlocal looked_at
        looked_at += 1
        return is_full(self, now)

    monkeypatch.setattr(TokenBucket, "is_full", counted)
    limiter = with_quotas(quota_entity(client_id=None))
    for number in range(400):
        found = limits(limiter, client=f"c{number}").produce
        assert found is not None
        found.take(5.0, 0.0)
        limits(limiter, client="honest")
    assert looked_at <= 20 * 200, "once for every tenth of them, not once for each request"


def test_nobody_gets_rid_of_a_debt_by_using_other_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limiter_module, "BUCKETS_MAX", 50)
    limiter = with_quotas(quota_entity(client_id=None))
    debtor = limits(limiter, client="debtor").produce
    assert debtor is not None
    debtor.take(1e9, 0.0)
    for number in range(500):
        other = limits(limiter, client=f"c{number}").produce
        assert other is not None
        other.take(1.0, 0.0)
    assert limits(limiter, client="debtor").produce is debtor


def test_a_client_has_the_buckets_that_others_share_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if room is made while its buckets are looked for."""
    monkeypatch.setattr(limiter_module, "BUCKETS_MAX", 50)
    limiter = Limiter(Bursts())
    limiter.replace([(quota_entity(client_id=None), dict.fromkeys((PRODUCE, QuotaKey.FETCH), 1.0))])
    for number in range(300):
        found = limits(limiter, client=f"c{number}")
        for bucket_ in (found.fetch, found.produce):
            assert bucket_ is not None
            bucket_.take(5.0, 0.0)
        assert limits(limiter, user="v", client=f"c{number}") == found
