"""What a Python worker of Spark does once in its life.

Spark's daemon collects garbage after every task. In a worker that has imported Arrow, numpy and PySpark this
looks at a few hundred thousand objects that live as long as the worker, and takes ten times as long as a task
of one row. So the first task tells the collector to leave alone whatever is there by then.
"""

from __future__ import annotations

import gc
import os

from pyspark import TaskContext

_settled: set[int] = set()
"""The processes that have done it: this one, and whoever it was forked off."""


def settle() -> None:
    """Call at the start of a task. Does nothing elsewhere: the driver's objects are not ours to keep."""
    if os.getpid() in _settled or TaskContext.get() is None:
        return
    gc.collect()  # what is garbage already would be kept for good
    gc.freeze()
    _settled.add(os.getpid())
