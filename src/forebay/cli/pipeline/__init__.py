"""`forebay pipeline`."""
