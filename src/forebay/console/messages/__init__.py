"""Reading messages for people: newest first, filtered, live; never as a member of a group."""
