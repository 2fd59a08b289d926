"""What each API needs, and what it answers to a client that may not: between a request and its handler."""
