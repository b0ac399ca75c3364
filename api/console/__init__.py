"""The console: pages for a browser, rendered on the server from the answers of /v2 operations.

It is a client of the interface and decides nothing. `context.py` calls the operations with the
user's session, so /v2 itself enforces permission levels and tenancy.
"""
