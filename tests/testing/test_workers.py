"""How `make test` shares the tests out among its workers (`tests/conftest.py`)."""

from __future__ import annotations

import os

import pytest


@pytest.mark.skipif("PYTEST_XDIST_WORKER" not in os.environ, reason="there are no workers")
def test_the_tests_of_a_module_run_on_one_worker(request: pytest.FixtureRequest) -> None:
    """pytest-xdist says nothing when it cannot tell pytest its groups: then every worker starts Spark."""
    assert request.node.nodeid.endswith("@tests/testing/test_workers.py")
