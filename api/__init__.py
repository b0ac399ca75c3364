"""The /v2 management interface for account holders and their programs."""
