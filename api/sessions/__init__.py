"""Signs accounts in, and finds the account of a session."""
