"""Every API that is served has a rule, and the documentation says the same."""

from __future__ import annotations

import re
from pathlib import Path

from forebay.core.guards.guard import unguarded
from forebay.core.guards.table import CHECKED_BY_HANDLERS, RULES
from forebay.wire.api_keys import OWN_KEYS_FROM
from forebay.wire.messages import API_KEYS, api_name
from support.brokers.served_apis import ENDPOINTS

DOCS = Path(__file__).parents[3] / "docs" / "acls.md"
FOR_EVERYBODY = {17, 18, 36}
"""Logging in, and asking which versions there are."""
FETCH, TOKENS = {1}, {38, 39, 40, 41}


def test_every_api_that_is_served_has_a_rule() -> None:
    assert ENDPOINTS.keys() <= RULES.keys(), "an API was added that anybody could use"
    assert {key for key in RULES if key < OWN_KEYS_FROM} <= set(API_KEYS)


def test_only_few_apis_have_no_guard() -> None:
    open_to_all = {key for key, rule in RULES.items() if rule.guard is unguarded}
    assert open_to_all == FOR_EVERYBODY | FETCH | TOKENS
    assert open_to_all & CHECKED_BY_HANDLERS == FETCH | TOKENS


def test_the_documentation_has_the_table() -> None:
    rows = re.findall(r"^\| (\w+) \((\d+)\) \| (.+?) \| (.*?) ?\|$", DOCS.read_text(), re.MULTILINE)
    documented = {int(key): (name, needs, denied) for name, key, needs, denied in rows}
    assert documented == {key: (api_name(key), rule.needs, rule.denied) for key, rule in RULES.items()}
