"""The leader's side of share groups: share partitions, the fetches and acknowledgements of their members."""
