"""`forebay top`: what a cluster does, in a terminal."""
