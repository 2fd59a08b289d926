"""`forebay user`: users that may log in."""
