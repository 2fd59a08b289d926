"""Responses: those that are ready later, those made in parts, and sending them."""
