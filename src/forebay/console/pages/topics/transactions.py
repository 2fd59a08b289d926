"""Transactions: open, hanging and ended ones, and aborting one whose producer is gone."""

from __future__ import annotations

import time
from typing import Any

from forebay.console.web.asking import Ask, Change
from forebay.console.web.page import Page
from forebay.console.web.paging import page_of
from forebay.operations.transactions import (
    OPEN_STATES,
    Transaction,
    abort_transaction,
    list_transactions,
)

PAGE = Page()

_PARTITIONS_SHOWN_MAX = 20


@PAGE.get("/transactions")
def transactions(ask: Ask) -> dict[str, Any]:
    """The query `open` leaves out those that have ended."""
    now_ms = time.time_ns() // 1_000_000
    with ask.cluster.connections() as connections:
        found = list_transactions(connections, OPEN_STATES if ask.flag("open") else ())

    def show(each: Transaction) -> dict[str, Any]:
        return {
            "id": each.id,
            "state": each.state,
            "open": each.is_open,
            "overdue": each.is_overdue(now_ms),
            "age_ms": now_ms - each.start_ms if each.is_open and each.start_ms >= 0 else None,
            "timeout_ms": each.timeout_ms,
            "producer_id": each.producer_id,
            "producer_epoch": each.producer_epoch,
            "coordinator": each.coordinator,
            "partitions": [f"{topic}-{index}" for topic, index in each.partitions[:_PARTITIONS_SHOWN_MAX]],
            "partitions_total": len(each.partitions),
        }

    listed = page_of(
        ask,
        found,
        name=lambda each: each.id,
        columns={
            "id": lambda each: each.id,
            "state": lambda each: each.state,
            "age": lambda each: now_ms - each.start_ms if each.is_open and each.start_ms >= 0 else None,
            "partitions": lambda each: len(each.partitions),
        },
        default="-age",
        show=show,
    )
    return {**listed, "overdue": sum(each.is_overdue(now_ms) for each in found)}


@PAGE.change("/transactions/{id}/abort")
def abort(ask: Ask) -> Change:
    name = ask.path["id"]

    def act() -> None:
        with ask.cluster.connections() as connections:
            abort_transaction(connections, name)

    return Change(
        question=f"Abort the open transaction of {name}?",
        details=[
            "Readers of committed messages will never see its messages.",
            "Its producer is shut out: the next thing that it sends is refused.",
        ],
        done=f"aborted the transaction of {name}",
        command=["transaction", "abort", name, "--yes"],
        act=act,
        danger=True,
        name=name,
        verb="Abort",
    )
