"""Shows messages with the registry and the masks of this console, if it has them."""

from __future__ import annotations

from functools import partial

from forebay.console.messages.masking import Mask, mask_for
from forebay.console.messages.registry import shared_decoder
from forebay.console.messages.searching import Show
from forebay.console.messages.shown import PREVIEW_BYTES, Decode, shown_record
from forebay.console.settings import ConsoleSettings
from forebay.console.watch.cluster_access import ClusterAccess


def show_for(settings: ConsoleSettings, limit: int = PREVIEW_BYTES) -> Show:
    return partial(shown_record, limit=limit, decode=_decode(settings))


def mask_of(cluster: ClusterAccess, topic: str, user: str) -> Mask | None:
    """The mask that hides fields from this user; None if nothing is hidden."""
    return mask_for(cluster, topic, user, _decode(cluster.settings))


def _decode(settings: ConsoleSettings) -> Decode | None:
    return shared_decoder(settings.registry).decoded if settings.registry else None
