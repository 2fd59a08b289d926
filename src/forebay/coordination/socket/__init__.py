"""A store that one process serves to others of the same machine, over Unix sockets."""
