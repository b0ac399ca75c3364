"""The operations of the interface, one file for each kind of record."""
