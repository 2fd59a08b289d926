"""The simulator: whole brokers in one process, on virtual time, with faults chosen by a seed.

Production code runs unchanged; only its ports (broker/ports.py) are replaced. Everything that happens is an
event of one `World`, in an order determined by the seed alone, so a failure is replayed by its seed.
"""
