"""The disks of simulated machines, and what lies on them."""
