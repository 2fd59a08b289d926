"""The models of what clients did and learned: each knows which states of the cluster are possible."""
