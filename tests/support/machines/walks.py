"""Random walks: few in `make test`, many in `make chaos`."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine


def seeds(few: int, many: int) -> list[object]:
    """What walks begin with."""
    more = [pytest.param(seed, marks=pytest.mark.chaos) for seed in range(few, many)]
    return [*range(few), *more]


def walks(machine: type[RuleBasedStateMachine], *, few: int, many: int, steps: int) -> tuple[type, type]:
    """Two test cases of a state machine, the second for `make chaos`."""

    def case(count: int) -> type:
        taken = settings(max_examples=count, stateful_step_count=steps, deadline=None)
        return type(machine.__name__, (machine.TestCase,), {"settings": taken})

    long = case(many)
    return case(few), pytest.mark.timeout(0)(pytest.mark.chaos(long))
