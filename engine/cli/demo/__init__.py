"""The demo: real readings from a library, through the product, on servers of its own.

It takes the ways that everybody takes: the catalog goes in as by `catalog load`, the readings as
by `publish`, the trigger runs as by `run`, and what it did is read from outside, from the metrics
port and from the topics.
"""
