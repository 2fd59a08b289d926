"""The request that a page gets (`Ask`), and its answers: data, a `Download` or a `Change`.

A page's functions are plain, blocking functions of an `Ask`. They run in threads, never on the event loop,
and their answers are turned into JSON there too.

Every change is a `Change`: what to ask the person first, what to say afterwards, the command line for it, and
the function that does it. `answering.py` asks before it acts, writes the log line, and refuses it in a
read-only console, so that no page can forget that.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, NamedTuple

from forebay.console.watch.cluster_access import ClusterAccess
from forebay.lazy import dataclass
from forebay.operations.client import CommandError


class NotThere(CommandError):
    """The page or the thing does not exist: answered with 404."""


class WrongInput(CommandError):
    """The input of a person cannot be used: answered with 422. `field` names it."""

    def __init__(self, message: str, field: str = "") -> None:
        super().__init__(message)
        self.field = field


class Download(NamedTuple):
    """Bytes for a file, never shown by the browser."""

    data: bytes
    filename: str
    content_type: str = "application/octet-stream"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    question: str
    """A sentence that says what will happen: "Delete topic orders with 1,200 messages?"."""
    done: str
    """A sentence for afterwards: "deleted topic orders"."""
    command: Sequence[str]
    """The same as arguments of `forebay`, without the broker's address."""
    act: Callable[[], Any]
    """Does it. If it returns a text, that is said instead of `done`."""
    danger: bool = False
    """True if something is lost for good. The person types `name` then."""
    name: str = ""
    details: Sequence[str] = ()
    """More lines for the question, such as a preview."""
    verb: str = ""
    """The text of the button; Delete if there is danger, else Do it."""
    stdin: str | None = None
    """The input of the command, if it reads something."""
    then: str = ""
    """A second command, which reads what the first one prints."""

    @property
    def command_line(self) -> str:
        line = shlex.join(["forebay", *self.command])
        before = "" if self.stdin is None else f"echo {shlex.quote(self.stdin)} | "
        return f"{before}{line}{f' | {self.then}' if self.then else ''}"


@dataclass(slots=True, kw_only=True)
class Ask:
    """A request of a page."""

    cluster: ClusterAccess
    path: Mapping[str, str]
    """The parts of the address that the route names in braces."""
    query: Mapping[str, str] = field(default_factory=dict)
    body: Mapping[str, Any] = field(default_factory=dict)
    user: str = ""
    read_only: bool = False

    def text(self, name: str, default: str = "") -> str:
        return self.query.get(name, default)

    def number(self, name: str, default: int, *, least: int = 0, most: int = 2**63 - 1) -> int:
        """A whole number of the query, which must lie in these bounds."""
        text = self.query.get(name, "")
        if not text:
            return default
        return whole_number(text, name, least=least, most=most)

    def flag(self, name: str) -> bool:
        return self.query.get(name, "") in ("1", "true", "yes")


def whole_number(value: Any, name: str, *, least: int = 0, most: int = 2**63 - 1) -> int:
    """A number that a person typed, or that a program sent."""
    text = str(value).strip()
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) < 20):
        raise WrongInput(f"{text!r} is no whole number", name)
    number = int(text)
    if not least <= number <= most:
        raise WrongInput(f"{number} is not between {least} and {most}", name)
    return number


def body_text(ask: Ask, name: str, *, required: bool = True, default: str = "") -> str:
    """A text of the body; raises WrongInput if it is needed and empty."""
    value = ask.body.get(name, default)
    if not isinstance(value, str):
        raise WrongInput("this must be text", name)
    if required and not value.strip():
        raise WrongInput("this is empty", name)
    return value
