"""A plugin of pytest that puts the mistake named by FOREBAY_MISTAKE into every test of a run."""

from __future__ import annotations

import os

import pytest

from support.mutants import caught

VARIABLE = "FOREBAY_MISTAKE"


@pytest.fixture(autouse=True)
def mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    getattr(caught, os.environ[VARIABLE])(monkeypatch)
