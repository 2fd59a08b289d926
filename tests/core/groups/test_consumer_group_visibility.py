"""A pattern matches what its member may describe: others for each member, and after each change of rules."""

from __future__ import annotations

import pytest

from forebay.core.groups.consumer.patterns import Pattern
from forebay.core.groups.shard import TopicInfo
from forebay.errors import ErrorCode
from support.machines.consumer_runtime import ORDERS, PAYMENTS, ConsumerClient, ConsumerRuntime, parts, settle

SECRET = b"s" * 16


class Rules:
    """Who may not see what."""

    def __init__(self, *hidden: tuple[str, str]) -> None:
        self.revision = 0
        self._hidden = set(hidden)

    def may_describe(self, principal: str, _host: str, topic: str) -> bool:
        return (principal, topic) not in self._hidden

    def hide(self, principal: str, topic: str) -> None:
        self._hidden.add((principal, topic))
        self.revision += 1

    def show(self, principal: str, topic: str) -> None:
        self._hidden.discard((principal, topic))
        self.revision += 1


@pytest.fixture
def rules() -> Rules:
    return Rules()


@pytest.fixture
def runtime(rules: Rules) -> ConsumerRuntime:
    runtime = ConsumerRuntime()
    runtime.visibility = rules
    runtime.shard = runtime.fresh()
    return runtime


def client(runtime: ConsumerRuntime, name: str, regex: str = ".*") -> ConsumerClient:
    member = ConsumerClient(runtime, name)
    member.topics, member.regex = (), regex
    return member


def come_to_rest(*members: ConsumerClient) -> None:
    for _ in range(4):
        settle(list(members))


def test_what_a_member_may_not_see_is_not_assigned_to_it(runtime: ConsumerRuntime, rules: Rules) -> None:
    rules.hide("User:a", "payments")
    a = client(runtime, "a")
    come_to_rest(a)
    assert a.owned == parts(ORDERS, 0, 1, 2, 3)
    b = client(runtime, "b")
    come_to_rest(a, b)
    assert parts(PAYMENTS, 0, 1) <= b.owned, "the same pattern, and another principal"
    assert a.owned | b.owned == parts(ORDERS, 0, 1, 2, 3) | parts(PAYMENTS, 0, 1)


def test_a_change_of_the_rules_moves_partitions(runtime: ConsumerRuntime, rules: Rules) -> None:
    a, b = client(runtime, "a"), client(runtime, "b")
    come_to_rest(a, b)
    for member, other in ((a, b), (b, a)):
        rules.hide(member.principal, "payments")
        come_to_rest(a, b)
        assert not member.owned & parts(PAYMENTS, 0, 1), "though the group as a whole means the same topics"
        assert parts(PAYMENTS, 0, 1) <= other.owned
        rules.show(member.principal, "payments")
    rules.hide("User:a", "payments")
    rules.hide("User:b", "payments")
    come_to_rest(a, b)
    assert not (a.owned | b.owned) & parts(PAYMENTS, 0, 1)


def test_a_topic_that_comes_later_is_seen_only_by_those_who_may(
    runtime: ConsumerRuntime, rules: Rules
) -> None:
    a = client(runtime, "a")
    come_to_rest(a)
    rules.hide("User:a", "secret")
    runtime.see_topics({**runtime.topics, "secret": TopicInfo(SECRET, 3)})
    come_to_rest(a)
    assert a.owned == parts(ORDERS, 0, 1, 2, 3) | parts(PAYMENTS, 0, 1)
    rules.show("User:a", "secret")
    come_to_rest(a)
    assert parts(SECRET, 0, 1, 2) <= a.owned


def test_a_new_coordinator_knows_whose_pattern_it_is(runtime: ConsumerRuntime, rules: Rules) -> None:
    rules.hide("User:a", "payments")
    a, b = client(runtime, "a"), client(runtime, "b")
    come_to_rest(a, b)
    runtime.shard = runtime.fresh()
    runtime.carry_out(runtime.shard.loaded(runtime.now))
    runtime.see_topics({**runtime.topics, "more": TopicInfo(SECRET, 1)})
    b.beat()  # makes the new assignment before `a` says anything
    target = runtime.consumers().state.target(a.member_id)
    assert target and not target & parts(PAYMENTS, 0, 1)


def test_another_principal_of_the_same_member_sees_other_topics(
    runtime: ConsumerRuntime, rules: Rules
) -> None:
    rules.hide("User:eve", "payments")
    a = client(runtime, "a")
    come_to_rest(a)
    a.principal = "User:eve"
    come_to_rest(a)
    assert a.owned == parts(ORDERS, 0, 1, 2, 3)


def test_patterns_that_no_member_has_any_more_are_forgotten(runtime: ConsumerRuntime, rules: Rules) -> None:
    """A member may send another pattern with every heartbeat, and members come and go."""
    rules.hide("User:a", "payments")
    a, b = client(runtime, "a"), client(runtime, "b")
    come_to_rest(a, b)
    for number in range(20):
        a.regex, a.tells_all = f".*|{number}", True
        settle([a, b])
        guest = client(runtime, f"guest{number}", f"{number}|.*")
        settle([a, b, guest])
        guest.leave()
    settle([a, b])
    known = runtime.consumers().subscriptions
    assert len(known._matches) <= 2 and len(known._visible) <= 2


# -- what a pattern costs --------------------------------------------------------------------------------


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names that were compared with a pattern, by the shard that answers."""
    names: list[str] = []
    matches = Pattern.matches

    def noted(pattern: Pattern, name: str) -> bool:
        names.append(name)
        return matches(pattern, name)

    monkeypatch.setattr(Pattern, "matches", noted)
    return names


def test_names_that_a_member_may_not_see_are_not_compared(
    runtime: ConsumerRuntime, rules: Rules, compared: list[str]
) -> None:
    """A comparison may take milliseconds, and a member needs no right to any topic to send a pattern."""
    rules.hide("User:a", "payments")
    rules.hide("User:a", "orders")
    come_to_rest(client(runtime, "a", "(?:.{0,5}x?){0,5}y"))
    assert compared == []


def test_a_name_is_compared_once_however_often_topics_and_rules_change(
    runtime: ConsumerRuntime, rules: Rules, compared: list[str]
) -> None:
    a, b = client(runtime, "a", "pay.*"), client(runtime, "b", "pay.*")
    come_to_rest(a, b)
    first = len(compared)
    rules.hide("User:a", "payments")
    come_to_rest(a, b)
    rules.show("User:a", "payments")
    come_to_rest(a, b)
    assert len(compared) == first
    runtime.see_topics({**runtime.topics, "pay-more": TopicInfo(SECRET, 1)})
    come_to_rest(a, b)
    assert set(compared[first:]) == {"pay-more"}
    assert parts(SECRET, 0) <= a.owned | b.owned


def test_a_pattern_that_could_take_long_is_refused_with_what_to_do(runtime: ConsumerRuntime) -> None:
    answer = runtime.enter_group("a", topics=None, regex=".*(?:(?:[^a])*){0,150}.*(?:(?:.{0,5}){0,150})y")
    assert answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert "forebay.group.pattern.size.max" in (answer.error_message or "")
    names = "|".join(f"topic-of-team-{number}" for number in range(60))
    assert runtime.enter_group("a", topics=None, regex=names).error_code == ErrorCode.NONE
