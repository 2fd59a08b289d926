"""Users and delegation tokens."""
