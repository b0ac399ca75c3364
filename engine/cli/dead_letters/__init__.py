"""`proximity dead-letters`: lists dead letters, and replays them to their original topics."""
