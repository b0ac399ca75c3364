"""The formats of detections: a module each, with `read` (docs/formats.md, docs/decisions/0076)."""
