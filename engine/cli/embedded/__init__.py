"""Servers that the process starts for itself on loopback, for `--embedded` and `demo`.

A real Kafka protocol broker (librdkafka's), a real Redis server and an SQLite file. They are for
trying out and for tests: the broker keeps about 5 MB of each partition in memory, and everything is
deleted when the process ends, except an SQLite file in a directory that the caller named.
"""
