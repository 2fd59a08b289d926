"""Invariants that clients cannot see: of the brokers, their disks, the store, and their connections."""
