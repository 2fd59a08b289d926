"""Noticing that a broker has died, fencing it early, and measuring how long that took."""
