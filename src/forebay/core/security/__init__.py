"""Identities of clients: users, their logins, and the order of the steps of a login."""
