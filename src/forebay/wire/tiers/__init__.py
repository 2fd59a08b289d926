"""Tiered storage: how segments, manifests and topics look in an object store. Pure; see `layout.py`."""
