"""Metrics, log lines, and stalls of the event loop."""
