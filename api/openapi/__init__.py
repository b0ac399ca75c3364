"""The OpenAPI document, made from the models that read requests and write answers."""
