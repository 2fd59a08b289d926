"""Plots: the subjects of stories that are not about everything.

An ordinary story has actors, faults and settings by chance, and most of it has nothing to do with any single
rule of a broker. A plot has few actors and the faults that put one rule to the test, again and again, so that
almost every seed does. The mutation tests use them: a bug is caught in seconds, and whatever else changes in
the brokers, most stories of its plot catch it.
"""

from __future__ import annotations

from forebay.sim.plots import coordinators, delays_and_views, folds, replication, shares, stores, tiers
from forebay.sim.plots.plot import Plot

PLOTS: dict[str, Plot] = {
    **replication.PLOTS,
    **stores.PLOTS,
    **folds.PLOTS,
    **coordinators.PLOTS,
    **delays_and_views.PLOTS,
    **shares.PLOTS,
    **tiers.PLOTS,
}
