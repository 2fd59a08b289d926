"""Packages that only some uses need, imported when one of those is asked for."""

from __future__ import annotations

import importlib
from typing import Any

from forebay.errors import ForebayError


class MissingPackageError(ForebayError):
    """The message names the extra of `forebay` that installs it."""


def require(module: str, extra: str) -> Any:
    """The imported module."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingPackageError(f"this needs {module}: pip install 'forebay[{extra}]' ({error})") from None
