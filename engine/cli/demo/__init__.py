"""The demo: real readings from a library, sent through the product, on servers of its own.

It uses the product's own ways: the catalog is loaded as by `catalog load`, the readings are
published as by `publish`, the trigger runs as by `run`, and the results are read from outside, from
the metrics port and the topics.
"""
