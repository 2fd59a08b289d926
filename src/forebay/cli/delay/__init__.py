"""`forebay delay`."""
