"""What is made on first use: dataclasses whose methods are compiled late, and what tables name."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import KW_ONLY, FrozenInstanceError, field
from pathlib import Path
from typing import ClassVar

import pytest

from forebay import lazy
from forebay.lazy import dataclass, load


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    number: int
    names: list[str] = field(default_factory=list)
    LIMIT: ClassVar[int] = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Longer(Value):
    more: int = 3


@dataclass(slots=True)
class State:
    number: int
    _: KW_ONLY
    step: int = 1

    def __post_init__(self) -> None:
        self.number += self.step


@dataclass(slots=True, eq=False)
class Thing:
    number: int


@dataclass(frozen=True, slots=True, order=True)
class Place:
    number: int


@dataclass(frozen=True, slots=True)
class Folded:
    name: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Folded) and self.name.lower() == other.name.lower()


def test_no_method_is_compiled_before_the_first_is_needed() -> None:
    @dataclass(frozen=True, slots=True)
    class Unused:
        number: int

    generated = vars(Unused)
    assert type(generated["__init__"]).__name__ == "_StandIn"
    assert Unused(1).number == 1
    assert type(generated["__init__"]).__name__ == "function"
    assert type(generated["__eq__"]).__name__ == "function"


def test_a_value_is_equal_hashed_and_shown_like_that_of_pythons_dataclass() -> None:
    assert Place(1) == Place(1) != Place(2)
    assert hash(Place(1)) == hash(Place(1))
    assert Place(1) < Place(2)
    assert repr(Value(number=1)) == "Value(number=1, names=[])"
    assert Thing(1) != Thing(1)
    assert State(1) == State(1)
    with pytest.raises(TypeError, match="unhashable"):
        hash(State(1))
    assert Folded("a") == Folded("A")
    assert hash(Folded("a")) == hash(Folded("a"))


def test_a_frozen_value_refuses_every_change() -> None:
    value = Value(number=1)
    with pytest.raises(FrozenInstanceError):
        value.number = 2  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        del value.number


def test_there_are_slots_and_no_dict() -> None:
    state = State(1)
    state.number = 7
    assert not hasattr(state, "__dict__")
    with pytest.raises(AttributeError):
        state.other = 1  # type: ignore[attr-defined]


def test_the_tools_of_dataclasses_work_on_values_and_on_classes() -> None:
    assert [each.name for each in dataclasses.fields(Longer)] == ["number", "names", "more"]
    assert dataclasses.replace(Longer(number=1), more=5) == Longer(number=1, more=5)
    assert dataclasses.asdict(Longer(number=1)) == {"number": 1, "names": [], "more": 3}
    assert State.__match_args__ == ("number",)


def test_values_can_be_pickled_and_copied() -> None:
    value = Longer(number=1, names=["a"], more=2)
    assert pickle.loads(pickle.dumps(value)) == value
    assert copy.deepcopy(value) == value
    assert copy.copy(State(1)) == State(1)


def test_threads_that_make_the_first_value_at_once_all_get_one() -> None:
    for _ in range(50):

        @dataclass(frozen=True, slots=True)
        class Fresh:
            number: int
            names: list[str] = field(default_factory=list)

        with ThreadPoolExecutor(4) as pool:
            made = list(pool.map(Fresh, range(4)))
        assert made == [Fresh(number) for number in range(4)]


def test_what_a_table_names_is_imported() -> None:
    assert load("forebay.clock:Clock").__name__ == "Clock"


def _references() -> list[str]:
    """All of them, also those that begin with a constant of their module."""
    found: set[str] = set()
    for path in Path(lazy.__file__).parent.rglob("*.py"):
        text = path.read_text()
        constants = dict(re.findall(r"^(_\w+) = \"(forebay[\w.]*)\"$", text, flags=re.MULTILINE))
        for start, rest in re.findall(r"[\"'](forebay|\{_\w+\})([\w.]*:\w+)[\"']", text):
            found.add(constants.get(start.strip("{}"), start) + rest)
    return sorted(found)


@pytest.mark.parametrize("reference", _references())
def test_everything_that_is_named_for_later_is_there(reference: str) -> None:
    """No type checker looks into these names, and what is rarely used would fail when it is needed."""
    assert lazy.load(reference) is not None


@dataclass(slots=True)
class Base:
    number: int


class Derived(Base):
    def __init__(self, number: int) -> None:
        super().__init__(number + 1)

    def __repr__(self) -> str:
        return f"derived from {super().__repr__()}"


def test_a_subclass_calls_the_methods_of_its_base_first() -> None:
    assert Derived(1).number == 2
    assert repr(Derived(1)) == "derived from Derived(number=2)"


def test_what_cannot_be_compiled_says_so_each_time() -> None:
    @dataclass(slots=True)
    class Wrong:
        names: list[str] = []  # noqa: RUF012

    for _ in range(2):
        with pytest.raises(ValueError, match="mutable default"):
            Wrong()
