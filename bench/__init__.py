"""Benchmarks of the broker: what it costs, beside what the machine itself allows and beside Apache Kafka.

Every figure stands next to a raw limit measured in the same run (a bare sendfile, a bare echo server, a
bare receive-CRC-write loop), because absolute numbers say more about the machine than about the broker.
"""
