"""Formats of detections: what gateways, CloudEvents and schema registries write (docs/formats.md).

decoders.py chooses the reader of a topic's format.
"""
