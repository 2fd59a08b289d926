"""The documentation says what the code does."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from forebay.cli.main import VERBS, forebay

ROOT = Path(__file__).parents[2]


def test_the_configuration_page_is_current() -> None:
    script = ROOT / "scripts" / "configuration_docs.py"
    done = subprocess.run(
        [sys.executable, str(script), "--check"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def commands() -> list[tuple[str, click.Command]]:
    found: list[tuple[str, click.Command]] = []
    for verb in VERBS:
        command = forebay.get_command(click.Context(forebay), verb)
        assert command is not None
        if isinstance(command, click.Group):
            found += [(f"{verb} {name}", sub) for name, sub in command.commands.items()]
        else:
            found.append((verb, command))
    return found


@pytest.mark.parametrize(
    ("name", "command"), commands(), ids=lambda value: value if isinstance(value, str) else ""
)
def test_every_option_of_every_command_is_on_the_page(name: str, command: click.Command) -> None:
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    _, heading, rest = page.partition(f"`forebay {name}")
    assert heading, f"docs/cli.md has nothing about forebay {name}"
    common = page.partition("## Options that the client commands share")[2]
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert any(f"`{spelling}" in rest or f"`{spelling}" in common for spelling in parameter.opts), (
                parameter.opts
            )


def test_every_link_between_pages_leads_somewhere() -> None:
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8")):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.relative_to(ROOT)} links to {target}"
