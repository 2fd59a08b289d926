"""What operators do to a cluster, without a terminal: the command line and the console both use it."""
