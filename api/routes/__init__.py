"""The operations of the interface, a file a kind of record."""
