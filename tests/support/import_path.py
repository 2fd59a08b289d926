"""Where the child processes of tests import from."""

from __future__ import annotations

import os
from pathlib import Path

_TESTS = Path(__file__).parents[1]


def import_path() -> str:
    """PYTHONPATH for a child: the tests, then that of this process. What is installed may be another tree."""
    return os.pathsep.join(filter(None, [str(_TESTS), os.environ.get("PYTHONPATH")]))
