"""The model of share groups: what it lets pass, and what it does not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from forebay.errors import ErrorCode
from forebay.sim.actors.client import Failed, Refused
from forebay.sim.actors.shares import administrators
from forebay.sim.actors.shares.sessions import Said, acknowledgements
from forebay.sim.models.share_records import ACCEPT, REJECT, RELEASE, Hold, RecordId, ShareRules, Term
from forebay.sim.models.shares import Shares

AT = ("jobs", 0)
PLACE = (AT, 7)
TERM: Term = (1, 3, True)


@pytest.fixture
def breaches() -> list[str]:
    return []


@pytest.fixture
def shares(breaches: list[str]) -> Shares:
    shares = Shares(breaches.append)
    shares.rules = ShareRules(lock_ms=1_000, delivery_limit=3, backoff_ms=0)
    return shares


def hold(member: str, count: int, asked_at: float, term: Term | None = TERM) -> Hold:
    """A delivery that took 10 ms; each member has one session."""
    return Hold(
        place=PLACE,
        count=count,
        asked_at=asked_at,
        received_at=asked_at + 0.01,
        host="node1",
        term=term,
        session=member,
        member=member,
    )


def test_what_was_accepted_does_not_come_again(shares: Shares, breaches: list[str]) -> None:
    shares.delivered(hold("a", 1, 1.0))
    shares.let_go(PLACE, "a")
    shares.asked(PLACE, ACCEPT, 1.3)
    shares.finished(PLACE, 1.3, 1.5)
    shares.delivered(hold("b", 2, 1.4))  # on its way while the accept was answered
    assert not breaches
    shares.delivered(hold("b", 2, 1.6))
    assert any("accepted or rejected" in breach for breach in breaches)


def test_an_accept_without_an_answer_allows_both(shares: Shares, breaches: list[str]) -> None:
    shares.delivered(hold("a", 1, 1.0))
    shares.let_go(PLACE, "a")
    shares.asked(PLACE, ACCEPT, 1.3)
    shares.delivered(hold("b", 2, 1.6))
    shares.started(AT, 8, 0, [7], 2.0)
    assert not breaches


def test_a_record_has_one_holder_while_its_session_lasts(shares: Shares, breaches: list[str]) -> None:
    first = hold("a", 1, 1.0)
    shares.delivered(first)
    shares.delivered(hold("b", 2, 1.5))
    assert not breaches, "the session of a may have ended"
    shares.lives([first], 1.4)
    assert not breaches, "it may have ended since"
    shares.lives([first], 1.6)
    assert len(breaches) == 1


@pytest.mark.parametrize(
    ("asked_at", "term"), [(2.1, TERM), (1.5, (2, 3, True)), (1.5, (1, 4, True)), (1.5, None)]
)
def test_the_end_of_a_lock_and_another_leader_make_room(
    shares: Shares, breaches: list[str], asked_at: float, term: Term | None
) -> None:
    first = hold("a", 1, 1.0)
    shares.delivered(first)
    shares.delivered(hold("b", 2, asked_at, term))
    shares.lives([first], 9.0)
    assert not breaches


@pytest.mark.parametrize(
    ("counts", "is_breach"),
    [
        ([1, 2, 3], False),
        ([1, 1, 2], False),
        ([1, 2, 2], True),
        ([1, 2, 1], True),
        ([1, 2, 3, 4], True),
        ([2], True),
        ([1, 3], True),
    ],
)
def test_counts_go_up_to_the_limit(
    shares: Shares, breaches: list[str], counts: list[int], is_breach: bool
) -> None:
    for number, count in enumerate(counts):
        shares.delivered(hold(f"member-{number}", count, 2.0 * number))
    assert bool(breaches) is is_breach


def test_a_leader_that_dies_may_have_the_last_delivery_forgotten_and_no_other(
    shares: Shares, breaches: list[str]
) -> None:
    for number, count in enumerate((1, 2, 2, 2, 3)):
        shares.delivered(hold(f"member-{number}", count, 2.0 * number, (1, number, True)))
    assert not breaches
    shares.delivered(hold("last", 2, 20.0, (1, 9, True)))
    assert len(breaches) == 1


def test_only_deliveries_count_that_were_made_or_may_have_been(shares: Shares, breaches: list[str]) -> None:
    shares.doubt(AT, 1.0)
    shares.doubt(AT, 1.5)
    shares.no_doubt(AT, 1.5)
    shares.delivered(hold("a", 2, 2.0))
    assert not breaches
    shares.delivered(hold("b", 4, 4.0))
    assert any("delivery number 2" in breach for breach in breaches)


def test_what_is_damaged_may_be_given_up(shares: Shares, breaches: list[str]) -> None:
    shares.may_be_damaged = {PLACE}.__contains__
    shares.started(AT, 8, 0, [7], 2.0)
    assert not breaches
    shares.started(AT, 9, 8, [8], 2.0)
    assert len(breaches) == 1


def test_a_leader_that_was_replaced_may_deliver_for_the_first_time_only(
    shares: Shares, breaches: list[str]
) -> None:
    shares.finished(PLACE, 0.9, 1.0)
    shares.delivered(hold("a", 1, 2.0, (1, 3, False)))
    assert not breaches
    shares.delivered(hold("b", 2, 4.0, (1, 3, False)))
    assert len(breaches) == 1


def test_the_start_offset_passes_only_what_is_finished(shares: Shares, breaches: list[str]) -> None:
    shares.delivered(hold("a", 1, 1.0))
    shares.doubt(AT, 1.2)
    shares.started(AT, 7, 0, [7], 2.0)
    assert not breaches
    shares.started(AT, 8, 7, [7], 2.0)
    assert len(breaches) == 1, "it was delivered twice at most"


def test_deliveries_that_got_lost_count_for_the_limit(shares: Shares, breaches: list[str]) -> None:
    shares.delivered(hold("a", 1, 1.0))
    shares.doubt(AT, 1.2)
    shares.doubt(AT, 1.4)
    shares.started(AT, 8, 0, [7], 2.0)
    assert not breaches


def test_the_start_offset_does_not_go_back(shares: Shares, breaches: list[str]) -> None:
    shares.started(AT, 5, shares.start(AT), [], 2.0)
    assert shares.start(AT) == 5
    shares.started(AT, 4, 0, [], 2.0)  # asked for before the first answer
    assert not breaches
    shares.started(AT, 4, 5, [], 2.0)
    assert len(breaches) == 1


def test_nobody_acknowledges_for_another(shares: Shares, breaches: list[str]) -> None:
    shares.delivered(hold("a", 1, 1.0))
    shares.taken_from_a_stranger("b", PLACE, 1.4, 1.5)
    assert len(breaches) == 1


def test_a_lock_that_was_renewed_begins_anew(shares: Shares, breaches: list[str]) -> None:
    first = hold("a", 1, 1.0)
    shares.delivered(first)
    first.renewed_at = 1.8
    shares.delivered(hold("b", 2, 2.5))
    shares.lives([first], 9.0)
    assert len(breaches) == 1


def test_a_group_that_begins_at_the_end_gets_all_from_its_first_record_on(
    shares: Shares, breaches: list[str]
) -> None:
    shares.rules = replace(shares.rules, begins_at_end=True)
    shares.delivered(hold("a", 1, 1.0))
    shares.finished(PLACE, 1.1, 1.2)
    shares.started(AT, 8, 0, [5, 6, 7], 2.0)
    assert not breaches, "what was there before it is not for it"
    shares.started(AT, 9, 8, [5, 6, 7, 8], 3.0)
    assert len(breaches) == 1


def test_what_is_invisible_may_be_passed(shares: Shares, breaches: list[str]) -> None:
    shares.may_be_invisible = lambda place: place == (AT, 3)
    shares.started(AT, 4, 0, [3], 2.0)
    assert not breaches
    shares.finish({AT: {3: b"", 5: b""}})
    assert len(breaches) == 1


def test_after_a_reset_everything_comes_again(shares: Shares, breaches: list[str]) -> None:
    shares.delivered(hold("a", 1, 1.0))
    shares.asked(PLACE, ACCEPT, 1.3)
    shares.finished(PLACE, 1.3, 1.4)
    shares.resetting(AT)
    shares.delivered(hold("a", 1, 1.6))
    shares.started(AT, 3, 8, [7], 1.7)
    assert not breaches, "it is not known what has happened"
    shares.reset(AT, 5, 1.5, 2.0)
    shares.started(AT, 8, 8, [7], 1.9)  # asked for before
    shares.delivered(hold("a", 1, 2.1))
    assert not breaches
    assert shares.start(AT) == 5
    shares.started(AT, 8, 5, [4, 7], 3.0)
    assert len(breaches) == 1, "what was accepted before the reset has to be delivered again"


def test_what_was_delivered_before_a_reset_cannot_be_finished_after_it(
    shares: Shares, breaches: list[str]
) -> None:
    shares.delivered(hold("a", 1, 1.0))
    shares.resetting(AT)
    shares.reset(AT, 5, 1.5, 2.0)
    shares.asked(PLACE, ACCEPT, 2.1)
    shares.finished(PLACE, 2.1, 2.2)
    shares.delivered(hold("b", 1, 2.5))
    assert not breaches


def test_a_reset_that_was_refused_changes_nothing(shares: Shares, breaches: list[str]) -> None:
    shares.started(AT, 5, 0, [], 1.0)
    shares.resetting(AT)
    shares.not_reset(AT)
    shares.started(AT, 4, 5, [], 2.0)
    assert len(breaches) == 1


def test_a_record_that_has_the_offset_of_a_lost_one_is_new(shares: Shares, breaches: list[str]) -> None:
    lost, new = RecordId(3, b"lost"), RecordId(4, b"new")
    shares.rules = replace(shares.rules, loses_records=True)
    shares.delivered(replace(hold("a", 2, 1.0), record=lost))
    shares.asked(PLACE, ACCEPT, 1.3, lost)
    shares.finished(PLACE, 1.3, 1.4, lost)
    shares.started(AT, 8, 0, [], 1.5)
    shares.started(AT, 7, 8, [], 2.0)
    shares.delivered(replace(hold("a", 1, 3.0), record=new))
    shares.delivered(replace(hold("b", 3, 3.1), record=lost))  # by a leader that was replaced
    shares.asked(PLACE, ACCEPT, 3.2, lost)
    shares.finished(PLACE, 3.2, 3.3, lost)
    shares.delivered(replace(hold("b", 2, 5.0), record=new))
    assert not breaches
    shares.finish({AT: {7: b"new"}})
    assert len(breaches) == 1, "what was said of the lost one does not count for it"
    shares.asked(PLACE, ACCEPT, 5.2, new)
    shares.finished(PLACE, 5.2, 5.3, new)
    shares.finish({AT: {7: b"new"}})
    assert len(breaches) == 1
    shares.delivered(replace(hold("a", 3, 6.0), record=new))
    assert len(breaches) == 2, "it was accepted"


def test_a_record_that_has_the_offset_of_a_lost_one_is_not_passed(
    shares: Shares, breaches: list[str]
) -> None:
    lost = RecordId(3, b"lost")
    shares.rules = replace(shares.rules, loses_records=True)
    shares.delivered(replace(hold("a", 1, 1.0), record=lost))
    shares.asked(PLACE, ACCEPT, 1.3, lost)
    shares.finished(PLACE, 1.3, 1.4, lost)
    for when in (1.5, 1.6, 1.7):
        shares.doubt(AT, when)
    shares.sent_at = lambda _value: 20.0
    shares.finish({AT: {7: b"new"}})
    assert len(breaches) == 1


@pytest.mark.parametrize(
    ("one_type_each", "expected"),
    [
        (True, [(3, 4, [ACCEPT]), (5, 5, [REJECT]), (7, 7, [RELEASE])]),
        (False, [(3, 5, [ACCEPT, ACCEPT, REJECT]), (7, 7, [RELEASE])]),
    ],
)
def test_neighbours_are_acknowledged_together(
    one_type_each: bool, expected: list[tuple[int, int, list[int]]]
) -> None:
    kinds = {7: RELEASE, 4: ACCEPT, 3: ACCEPT, 5: REJECT}
    said = [Said((AT, offset), kind) for offset, kind in kinds.items()]
    batches = acknowledgements(said, one_type_each=one_type_each)[AT]
    found = [(each.first_offset, each.last_offset, each.acknowledge_types) for each in batches]
    assert found == expected


@pytest.mark.parametrize(
    ("code", "means"),
    [(ErrorCode.GROUP_ID_NOT_FOUND, Refused), (ErrorCode.NOT_COORDINATOR, Failed)],
)
def test_a_coordinator_that_was_replaced_may_have_reset_the_group(
    code: ErrorCode, means: type[Exception]
) -> None:
    with pytest.raises(means):
        administrators._check(code)
