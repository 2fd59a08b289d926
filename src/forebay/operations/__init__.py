"""Operations on a cluster, without a terminal: the command line and the console both use them."""
