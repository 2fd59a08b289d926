"""How this console shows messages: with its registry, if it has one."""

from __future__ import annotations

from functools import partial

from forebay.console.messages.registry import shared_decoder
from forebay.console.messages.searching import Show
from forebay.console.messages.shown import PREVIEW_BYTES, shown_record
from forebay.console.settings import ConsoleSettings


def show_for(settings: ConsoleSettings, limit: int = PREVIEW_BYTES) -> Show:
    decode = shared_decoder(settings.registry).decoded if settings.registry else None
    return partial(shown_record, limit=limit, decode=decode)
