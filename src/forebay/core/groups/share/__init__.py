"""Share groups (KIP-932): members take records of the same partitions, each record goes to one of them."""
