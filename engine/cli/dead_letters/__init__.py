"""Looking at dead letters, and putting them back where they came from."""
