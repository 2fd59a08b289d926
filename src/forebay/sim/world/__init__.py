"""The simulated environment of brokers and clients: time, loops, network, disks, the store, machines."""
