"""Tiered storage in a broker: copying closed segments to an object store, and reading them from there.

Nothing of this is imported or made unless `forebay.remote.url` is set.
"""
