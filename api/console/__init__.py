"""The console: pages for a browser, rendered here, about what the /v2 operations answer.

It is a client of the interface and decides nothing: `interface.py` calls the operations with the
visitor's session, so that /v2 itself says what each level and each company may see and change.
"""
