"""Every command line in the docs is one that `forebay` understands: its verbs, options and arguments."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from forebay.cli.main import forebay

ROOT = Path(__file__).parents[2]
_PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
_FENCE = re.compile(r"^```(?:sh|bash|console)?\n(.*?)^```", re.S | re.M)
_COMMAND = re.compile(r"(?:\$ |sudo (?:-u \w+ )?|[A-Z_]+=\S+ |ExecStart=|.*\| )*(?:\S*/)?forebay (.*)")
_ENDS = ("|", ">", ">>", "<", "2>", "&&", "||", "&", ";")
_SAID_BY_IT = "ready"
"""`forebay ready on ...` is what a broker prints."""


def documented() -> list[tuple[str, str]]:
    found = []
    for page in _PAGES:
        for block in _FENCE.findall(page.read_text(encoding="utf-8")):
            for line in re.sub(r"\\\n\s*", " ", block).splitlines():
                command = _COMMAND.fullmatch(line.strip())
                if command is not None and not command[1].startswith(_SAID_BY_IT):
                    found.append((page.name, command[1]))
    return found


def test_there_are_many_of_them() -> None:
    assert len(documented()) > 60


@pytest.mark.parametrize(("page", "line"), documented())
def test_a_command_of_the_docs_is_understood(page: str, line: str) -> None:
    words = shlex.split(line, comments=True)
    words = words[: next((at for at, word in enumerate(words) if word in _ENDS), len(words))]
    command: click.Command = forebay
    context = click.Context(forebay, info_name="forebay")
    while isinstance(command, click.Group):
        name = words.pop(0)
        found = command.get_command(context, name)
        assert found is not None, f"{page}: there is no forebay {name}"
        command = found
        context = click.Context(command, parent=context, info_name=name)
    if "--help" not in words:
        command.make_context(context.info_name, words, parent=context.parent)  # raises what it would say
