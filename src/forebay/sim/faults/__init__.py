"""What goes wrong in a story: machines and processes, links and the store, disks."""
