"""`forebay produce` and `forebay consume`."""
