"""Counts the topics again, without the recorder's code, and compares the result with SQL."""
