"""The whole product, and what its cost grows with; each a command of its own. See ../README.md."""
