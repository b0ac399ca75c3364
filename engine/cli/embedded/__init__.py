"""Servers that the process starts for itself on loopback: what `--embedded` and `demo` run on.

A real Kafka protocol broker (librdkafka's), a real Redis server and an SQLite file. They are for
trying out and for tests: the broker keeps about 5 MB a partition in memory, and everything is
gone when the process ends, save an SQLite file in a directory that the caller named.
"""
