"""The faults of a story: of machines and processes, links and the store, disks."""
