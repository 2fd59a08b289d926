"""Packages that only some pipelines need, imported when one of those is asked for."""

from __future__ import annotations

import importlib
from typing import Any

from forebay.spark.pipelines.jobs import PipelineError


def require(module: str, extra: str) -> Any:
    """The imported module; PipelineError names the extra of `forebay` that installs it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise PipelineError(f"this needs {module}: pip install 'forebay[{extra}]' ({error})") from None
