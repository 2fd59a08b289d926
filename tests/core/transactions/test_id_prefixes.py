"""Which transactional ids are in families."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from forebay.core.transactions.id_prefixes import members

IDS = ["".join(letters) for n in range(1, 5) for letters in itertools.product("ab", repeat=n)]


@given(st.lists(st.text("ab", max_size=4), max_size=6))
def test_an_id_is_in_a_family_if_it_begins_so(families: list[str]) -> None:
    expected = [each for each in IDS if any(family and each.startswith(family) for family in families)]
    assert members(IDS, families) == expected


class Compared(str):
    """Counts how often it is compared with a prefix."""

    compared = 0

    def startswith(self, *arguments: object) -> bool:
        Compared.compared += 1
        return super().startswith(*arguments)  # type: ignore[arg-type]


def test_thousands_of_families_are_not_each_compared_with_each_id() -> None:
    ids = [Compared(f"jobs-{number}-task") for number in range(2_000)]
    families = [f"jobs-{number}-" for number in range(1_000, 3_000)]
    Compared.compared = 0
    assert len(members(ids, families)) == 1_000
    assert Compared.compared <= len(ids)
