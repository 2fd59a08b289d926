"""Parts that only some brokers need, and how each is made when it is first asked for."""
