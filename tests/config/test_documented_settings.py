"""What the docs tell people to put into a broker's environment and into its file is taken by a broker."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from forebay.config.sources import load

PAGES = [*sorted((Path(__file__).parents[2] / "docs").glob("*.md")), Path(__file__).parents[2] / "README.md"]
VARIABLE = re.compile(r"\bFOREBAY_[A-Z][A-Z0-9_]*")
TOML = re.compile(r"```toml\n(.*?)```", re.DOTALL)
OTHERS = {"FOREBAY_CACHE_DIR", "FOREBAY_CONSOLE_PICTURES"}
"""Not of brokers: where pipelines keep what Spark compiled, and tests of the console their pictures."""


def variables() -> list[tuple[str, str]]:
    return sorted(
        {(page.name, found) for page in PAGES for found in VARIABLE.findall(page.read_text())}
        - {(page.name, other) for page in PAGES for other in OTHERS}
    )


@pytest.mark.parametrize(("page", "variable"), variables())
def test_every_variable_in_the_docs_is_one(page: str, variable: str) -> None:
    try:
        load(None, {variable: ""}, [])
    except Exception as error:
        assert "is no setting" not in str(error), f"{page} names {variable}"


def files() -> list[tuple[str, str]]:
    found = [(page.name, text) for page in PAGES for text in TOML.findall(page.read_text())]
    assert found
    return found


@pytest.mark.parametrize(("page", "text"), files(), ids=lambda value: value.splitlines()[0])
def test_every_file_of_settings_in_the_docs_is_read(page: str, text: str, tmp_path: Path) -> None:
    file = tmp_path / "broker.toml"
    if "ssl.keystore.location" not in text:  # what another part of the page has said
        text += '"ssl.keystore.location" = "/etc/forebay/broker.pem"\n'
    file.write_text(text)
    load(file, {}, [])
