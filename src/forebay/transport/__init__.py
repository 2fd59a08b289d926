"""Connections for programs without an event loop."""
