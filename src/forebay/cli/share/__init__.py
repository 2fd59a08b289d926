"""`forebay share`."""
