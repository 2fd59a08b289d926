"""The names of the topics that brokers keep state on."""

from __future__ import annotations

INTERNAL_TOPICS = ("__consumer_offsets", "__forebay_moves", "__share_group_state", "__transaction_state")
"""The brokers' own: what groups, share groups, transactions and movers are made of."""
