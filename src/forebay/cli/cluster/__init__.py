"""`forebay cluster`."""
