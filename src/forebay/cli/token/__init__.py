"""`forebay token`: logins for a while."""
