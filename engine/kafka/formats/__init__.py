"""Formats of detections: each is a module with a function `read` (docs/formats.md, decision 0076).

A format with schemas has `compiled` instead, which makes a schema's decoder.
"""
