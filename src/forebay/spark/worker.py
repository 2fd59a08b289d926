"""Keeps a Python worker's long-lived objects from the garbage collector.

Spark's daemon collects garbage after every task, and after every question that is asked when a query is
planned and committed. In a process that has imported Arrow, numpy and PySpark this looks at a few hundred
thousand objects that live as long as the process, and takes ten times as long as a task of one row. So from
the second call on, when modules were imported since the last one, all objects that exist are frozen: the
collector ignores them. The call comes right after a collection, so none of them is garbage.
"""

from __future__ import annotations

import gc
import os
import sys

_is_worker = os.environ.get("SPARK_PYTHON_RUNTIME") == "PYTHON_WORKER"
"""True in a process that Spark started. In a user's own process the collector is left alone."""
_modules_seen: int | None = None


def freeze_loaded_objects() -> None:
    """Call at the start of everything that Spark may ask of a process again and again."""
    global _modules_seen
    if not _is_worker:
        return
    modules = len(sys.modules)
    if _modules_seen is None:
        _modules_seen = 0
    elif _modules_seen != modules:
        _modules_seen = modules
        gc.freeze()
