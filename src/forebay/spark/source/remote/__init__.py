"""The part of a topic that lies in an object store, read by Spark's tasks themselves, without a broker."""
