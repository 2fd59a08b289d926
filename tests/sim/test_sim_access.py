"""Stories on brokers with an authorizer that allows everything: guards change nothing of what is allowed."""

from __future__ import annotations

import pytest

from forebay.core.acls.authorizer import Authorizer
from forebay.sim import broker_settings, simulation
from forebay.sim.simulation import Story, simulate
from forebay.sim.world.virtual_time import World
from support.brokers.loop_guard import loops_guarded


@pytest.mark.parametrize("seed", [1, 2])
def test_what_is_allowed_goes_on_as_without_an_authorizer(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    own_settings, decide = broker_settings.own_settings, Authorizer._decide
    decided = 0

    def with_access(world: World, number: int) -> dict[str, str]:
        access = {"authorizer.class.name": "acl", "allow.everyone.if.no.acl.found": "true"}
        return own_settings(world, number) | access

    def count(self: Authorizer, *question: object) -> bool:
        nonlocal decided
        decided += 1
        return decide(self, *question)  # type: ignore[arg-type]

    monkeypatch.setattr(simulation, "own_settings", with_access)
    monkeypatch.setattr(Authorizer, "_decide", count)
    with loops_guarded():
        ending = simulate(Story(seed=seed))
    assert ending.breach is None, ending
    assert decided > 10
