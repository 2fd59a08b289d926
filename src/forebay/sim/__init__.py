"""The simulator: whole brokers in one process, on virtual time, among faults that a seed chooses.

Production code runs unchanged; only its ports (broker/ports.py) are replaced. Everything that happens is an
event of one `World`, in an order that follows from the seed alone, so a failure is replayed by its number.
"""
