"""Delayed messages: requests about them, and lists of them."""
