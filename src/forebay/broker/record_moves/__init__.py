"""Moving records from one log to another exactly once: the journal, and the movers on this broker."""
