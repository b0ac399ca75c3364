"""A small installation under load: real Kafka, Redis and PostgreSQL, every role, the interface,
and a customer's service; with what has to come out of it, to the last message.

The long run (`benchmarks.soak`) and the faults (`benchmarks.faults`) stand on it.
"""
