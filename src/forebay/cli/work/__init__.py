"""`forebay work`."""
