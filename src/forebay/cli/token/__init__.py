"""`forebay token`: temporary logins."""
