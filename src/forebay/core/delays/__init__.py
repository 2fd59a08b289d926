"""Messages that become visible later: the meaning of their headers."""
