"""`forebay dead-letter`."""
