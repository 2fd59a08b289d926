"""One page of metrics of several."""

from __future__ import annotations

from forebay.local.workers.merged_metrics import merged

ONE = """# HELP a What a is.
# TYPE a gauge
a 1
# HELP b What b is.
# TYPE b counter
b{topic="x{y} z"} 2
b{topic="t"} 3
"""
TWO = """# HELP b What b is.
# TYPE b counter
b{topic="t"} 4
# HELP c What c is.
# TYPE c gauge
c 5
"""


def test_samples_of_a_metric_stand_together_with_the_worker_they_are_of() -> None:
    assert (
        merged({1: ONE, 2: TWO})
        == """# HELP a What a is.
# TYPE a gauge
a{worker="1"} 1
# HELP b What b is.
# TYPE b counter
b{worker="1",topic="x{y} z"} 2
b{worker="1",topic="t"} 3
b{worker="2",topic="t"} 4
# HELP c What c is.
# TYPE c gauge
c{worker="2"} 5
"""
    )


def test_no_pages_make_an_empty_one() -> None:
    assert merged({}) == ""
