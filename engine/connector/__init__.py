"""The pieces of the role `connector`: calls out of messages, results into messages and claims."""
