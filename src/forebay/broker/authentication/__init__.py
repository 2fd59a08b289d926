"""Logins on connections: what comes before the first request of a client on a SASL listener."""
