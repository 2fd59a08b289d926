"""`forebay group`."""
