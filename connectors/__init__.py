"""Calls to a customer's own web service, which supplies the content of a notification."""
