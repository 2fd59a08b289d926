"""Who is next: users share the time of the filtering threads, and so do the views of each."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from forebay.core.views.fair_line import FairLine


class Threads:
    """Takes work from a line, as long as there is some. Whoever asked for it asks for the same again."""

    def __init__(self, costs: dict[tuple[str, bytes], float], *, expected_s: float = 0.02) -> None:
        self.line: FairLine[float] = FairLine()
        self.used_s: dict[tuple[str, bytes], float] = defaultdict(float)
        self.order: list[tuple[str, bytes]] = []
        self._costs = costs
        self._expected_s = expected_s
        for user, view in costs:
            self.line.add(user, view, 0.0)

    def run(self, turns: int) -> None:
        for _ in range(turns):
            taken = self.line.take()
            assert taken is not None
            key = taken.user, taken.view
            self.line.charge(*key, self._expected_s)
            self.line.correct(*key, expected_s=self._expected_s, used_s=self._costs[key])
            self.used_s[key] += self._costs[key]
            self.order.append(key)
            self.line.add(*key, 0.0)

    def of_user(self, user: str) -> float:
        return sum(used_s for (name, _), used_s in self.used_s.items() if name == user)


def test_a_user_with_a_hundred_heavy_views_gets_no_more_than_one_with_a_light_one() -> None:
    costs = {("heavy", b"%d" % number): 0.5 for number in range(100)}
    threads = Threads({**costs, ("light", b"v"): 0.001})
    threads.run(5_000)
    assert threads.of_user("light") >= 0.9 * threads.of_user("heavy")
    heavy = [at for at, (user, _) in enumerate(threads.order) if user == "heavy"]
    assert min(after - before for before, after in pairwise(heavy)) > 100


def test_the_views_of_a_user_share_his_time() -> None:
    threads = Threads({("a", b"slow"): 0.1, ("a", b"fast"): 0.001, ("b", b"v"): 0.01})
    threads.run(5_000)
    assert 0.9 < threads.used_s["a", b"slow"] / threads.used_s["a", b"fast"] < 1.1
    assert 0.9 < threads.of_user("a") / threads.of_user("b") < 1.1


def test_who_comes_late_has_not_saved_up_turns() -> None:
    threads = Threads({("early", b"v"): 0.01})
    threads.run(1_000)
    threads._costs["late", b"v"] = 0.01
    threads.line.add("late", b"v", 0.0)
    threads.order.clear()
    threads.run(20)
    counts = Counter(user for user, _ in threads.order)
    assert abs(counts["late"] - counts["early"]) <= 2


def test_who_comes_new_is_next_or_second() -> None:
    threads = Threads({("heavy", b"%d" % number): 3.0 for number in range(50)})
    threads.run(200)
    threads.line.add("light", b"v", 0.0)
    users = [taken.user for _ in range(2) if (taken := threads.line.take()) is not None]
    assert "light" in users


def test_what_one_has_waiting_is_taken_in_its_order() -> None:
    line: FairLine[int] = FairLine()
    for number in range(10):
        line.add("a", b"v", number)
    assert len(line) == 10
    assert [taken.work for _ in range(10) if (taken := line.take()) is not None] == list(range(10))
    assert line.take() is None and len(line) == 0


def test_turns_go_round_where_no_time_passes() -> None:
    threads = Threads({("a", b"1"): 0.0, ("a", b"2"): 0.0, ("b", b"1"): 0.0})
    threads.run(400)
    counts = Counter(threads.order)
    assert counts["b", b"1"] == 200 and counts["a", b"1"] == counts["a", b"2"] == 100


def test_users_who_have_gone_are_forgotten() -> None:
    line: FairLine[int] = FairLine()
    for number in range(10_000):
        line.add(f"user {number}", b"%d" % number, number)
        line.take()
        line.charge(f"user {number}", b"%d" % number, 0.02)
    assert len(line._views) <= 1_001
    assert len(line._users._used_s) <= 1_001


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from([b"1", b"2"]), st.booleans()), max_size=200)
)
def test_all_work_is_taken_once(steps: list[tuple[str, bytes, bool]]) -> None:
    line: FairLine[int] = FairLine()
    added, taken = [], []
    for number, (user, view, takes) in enumerate(steps):
        line.add(user, view, number)
        added.append(number)
        if takes and (found := line.take()) is not None:
            taken.append(found.work)
            line.charge(found.user, found.view, 0.01 * number)
    while (found := line.take()) is not None:
        taken.append(found.work)
    assert sorted(taken) == added
