"""`forebay log`: files of a data directory, read without a broker."""
