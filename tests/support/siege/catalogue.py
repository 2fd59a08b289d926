"""Every attack by its name."""

from __future__ import annotations

from support.siege.attack import Attack
from support.siege.queries import Bombs, Patterns
from support.siege.slow_readers import SlowReaders
from support.siege.strangers import (
    ApiVersionsFlood,
    Garbage,
    HalfRequests,
    Handshakes,
    Headers,
    Silent,
)
from support.siege.users import Configs, Hoard, Names, WideRequests
from support.siege.wrong_logins import WrongPlain, WrongScram

ATTACKS: dict[str, type[Attack]] = {
    attack.name: attack
    for attack in (
        Silent,
        HalfRequests,
        Headers,
        ApiVersionsFlood,
        Garbage,
        Handshakes,
        WrongPlain,
        WrongScram,
        Names,
        Configs,
        WideRequests,
        Hoard,
        Patterns,
        Bombs,
        SlowReaders,
    )
}
