"""Consumers and members of consumer groups."""
