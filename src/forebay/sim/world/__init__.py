"""What simulated brokers and clients stand on: time, loops, network, disks, the store, machines."""
