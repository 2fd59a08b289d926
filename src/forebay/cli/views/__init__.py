"""`forebay view`: topics that show a part of another one."""
