"""Requests that name many things: how they are cut into pieces, and the answers put together."""
