"""`proximity check`: tests everything that a process needs at its start, and changes nothing."""
