"""Signing in, and knowing who is signed in."""
