"""The table of the states of a share group's request."""

from __future__ import annotations

from forebay.core.shares.call_states import ANSWERED, ASSEMBLING, TRANSITIONS, CallState


def reachable(start: CallState) -> set[CallState]:
    found = {start}
    while more := {each.target for each in TRANSITIONS if found & set(each.sources)} - found:
        found |= more
    return found


def test_every_state_is_reached_and_leads_to_the_answer() -> None:
    assert reachable(ASSEMBLING) == set(CallState)
    for state in CallState:
        assert ANSWERED in reachable(state)


def test_what_is_answered_stays_so() -> None:
    assert reachable(ANSWERED) == {ANSWERED}


def test_a_state_has_one_way_to_each_other() -> None:
    ways = [(source, each.target) for each in TRANSITIONS for source in each.sources]
    assert len(ways) == len(set(ways))
