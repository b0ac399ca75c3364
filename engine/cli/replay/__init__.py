"""`proximity replay`: decides recorded detections against a catalog again, without side effects.

Records come from Kafka or from a file (kafka_source.py, file_source.py). The catalog comes from
SQL, from a file loaded over a copy of SQL, or from a file alone (catalogs.py, catalog_copy.py).
Decoding and deciding are the trigger's; claims are in memory (decisions.py). The counts
(outcome.py) are written as text, JSON lines, CSV and one HTML report.
"""
