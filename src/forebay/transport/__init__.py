"""Connections of programs without an event loop."""
