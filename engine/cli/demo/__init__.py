"""The demo: real readings from a library, sent through the product on servers of its own.

The demo uses the product as users do: it loads the catalog like `catalog load`, publishes the
readings like `publish`, runs the roles like `run`, and reads the results from the metrics port and
the topics.
"""
