"""Messages that become visible later: what their headers ask for."""
