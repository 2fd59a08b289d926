"""Object stores: the port, a local directory and obstore behind it, and reading tiered topics from them.

Usable without a broker: Spark and the command line read tiered topics with `reading.py`.
"""
