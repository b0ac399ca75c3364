"""Counting the topics again, by other means than the recorder, and holding SQL against it."""
