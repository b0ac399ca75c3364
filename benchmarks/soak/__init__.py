"""Everything at half of what it can do, for minutes or hours, with edits, a flaky partner, and
processes that stop and die: `make soak`."""
