"""The /v2 management interface: what account holders and their programs talk to."""
