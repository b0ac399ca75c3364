"""From batches of records to rows in SQL: what is counted, and how it is written."""
