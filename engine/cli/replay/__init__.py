"""`proximity replay`: recorded detections against a catalog, in their own time, without effect.

Records come from Kafka or from a file (kafka_source.py, file_source.py), the catalog from SQL, from
a file loaded over a copy of it, or from a file alone (catalogs.py, catalog_copy.py). Decoding and
deciding are the trigger's; claims are in memory (decisions.py). What was counted (outcome.py) is
told as text, JSON lines, CSV and one HTML report.
"""
