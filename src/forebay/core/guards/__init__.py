"""Access checks between a request and its handler: what each API requires, and how it is refused."""
