"""`proximity check`: tests beforehand all that a start needs, and changes nothing."""
