"""`forebay user`: who may log in."""
