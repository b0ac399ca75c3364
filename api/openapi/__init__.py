"""The OpenAPI document: what is really accepted and returned."""
