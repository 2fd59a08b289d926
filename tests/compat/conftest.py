"""The benchmarks know how to fetch Spark's connector; they are a package at the root of the checkout."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
