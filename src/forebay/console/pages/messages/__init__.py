"""Messages: found, sent, and those that wait as dead letters or for their time."""
