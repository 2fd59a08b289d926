"""Delegation tokens: what clients ask about them, and their removal when they have expired."""
