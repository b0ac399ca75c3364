"""Turns batches of records into rows in SQL: what is counted, and how it is written."""
