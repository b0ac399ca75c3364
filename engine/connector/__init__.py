"""The role `connector`: turns messages into calls, and results into messages and claims."""
